"""A target policy is asked here, once, and becomes tables of actions and probabilities."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from fle.data import Dataset
from fle.errors import SettingsError
from fle.policies.action_table import ActionSpace, ActionTable, Array
from fle.policies.coverage import Coverage, coverage
from fle.policies.function_policies import BATCH_SIZE, Policy, Question, stated
from fle.policies.row_policies import settle


@dataclass(frozen=True, eq=False)
class TabulatedPolicy:
    """What a target policy does wherever the data will ask, and how well the data covers it.

    Attributes:
        following: at each row's next observation; that of a terminated row is never used.
        initial: at the initial observations.
        coverage: None for the policy that logged the data, which covers itself.
        remarks: reservations: what the log did not say about the policy, then about coverage.
    """

    following: ActionTable
    initial: ActionTable
    coverage: Coverage | None
    remarks: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of both tables in hexadecimal."""
        digest = hashlib.sha256()
        for table in (self.following, self.initial):
            for array in (table.actions, table.probabilities):
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    @property
    def enough(self) -> bool:
        """Whether the data covers the policy well enough for a headline number."""
        return self.coverage is None or self.coverage.enough

    def in_words(self) -> str:
        """How well the data covers the policy, in one line."""
        return "it logged the data" if self.coverage is None else self.coverage.in_words()

    def as_plain(self) -> dict[str, Any] | None:
        """The same for machines; None for the policy that logged the data."""
        return None if self.coverage is None else self.coverage.as_plain()


def tabulated(policy: Policy, data: Dataset, *, draws: int = 16, seed: int = 0) -> TabulatedPolicy:
    """Ask a policy at every next and every initial observation of the data.

    Args:
        policy: stated in any of the ways of `tabulate`; `Behaviour`, `ProbabilityColumns`,
            `RowProbabilities` or `RowActions`, which belong to the rows of data; or what `settle`
            gave for data of which this is a subset.
        data: the logged transitions.
        draws: actions drawn at each observation from a policy that can only be sampled.
        seed: of these draws.

    >>> policy = tabulated(lambda observations: (observations[:, 0] > 0).astype(int), data)
    >>> policy.following.actions.shape, policy.enough
    """
    _check_settings(draws, seed, BATCH_SIZE)
    data.require_initial_observations()
    settled = settle(policy, data, seed=seed)
    following, initial = settled.tables(data, draws, seed)
    covered = None if settled.logged_the_data else coverage(data, following, initial)
    remarks = (*settled.remarks, *(() if covered is None else covered.warnings))
    return TabulatedPolicy(following, initial, covered, remarks)


def tabulate(
    policy: Policy,
    observations: Array,
    *,
    number_of_actions: int | None,
    action_dim: int | None,
    draws: int = 16,
    seed: int = 0,
    batch_size: int = BATCH_SIZE,
) -> ActionTable:
    """The policy's actions and probabilities at each observation.

    Give `number_of_actions` if actions are discrete, `action_dim` if continuous, and None for the
    other. The policy is called in NumPy with batches of `observations`, and is one of:

    - `Probabilities`, `Deterministic`, `Stochastic`, `Normal`: a function with its meaning stated.
    - A function of two required arguments: as `Stochastic`, `draws` draws of equal probability.
    - A function of one argument, whose answer decides. Discrete: floats (n, A) are probabilities,
      integers (n,) are actions. Continuous: (n, k), or (n,) if k is 1, are actions.
    - An array (A,): these probabilities everywhere. An array (S, A): by discrete state.

    >>> tabulate([0.9, 0.1], np.zeros((5, 3)), number_of_actions=2, action_dim=None).candidates
    2
    """
    space = ActionSpace(number_of_actions, action_dim)
    _check_settings(draws, seed, batch_size)
    generator = np.random.default_rng(seed)
    question = Question(np.asarray(observations), space, draws, generator, batch_size)
    return stated(policy).table(question)


def _check_settings(draws: int, seed: int, batch_size: int) -> None:
    for name, value, least in (
        ("draws", draws, 1),
        ("seed", seed, 0),
        ("batch_size", batch_size, 1),
    ):
        if not isinstance(value, int | np.integer) or value < least:
            raise SettingsError(f"{name}: expected an integer of at least {least}, got {value!r}")
