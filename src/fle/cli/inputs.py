"""The data and the policies that a command line names."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fle.data import Dataset, read
from fle.errors import PolicyError
from fle.policies import (
    ActionTable,
    Policy,
    RowProbabilities,
    TabulatedPolicy,
    load_policy,
    tabulated,
)
from fle.policies.loading import TIMEOUT_SECONDS

COLUMNS = "columns"
# What `fle.data.read` calls probabilities that have no other name.
UNNAMED = "probability"


@dataclass(frozen=True, eq=False)
class Target:
    """A policy, what it answered, and how well the data covers it."""

    name: str
    policy: Policy
    tabulated: TabulatedPolicy

    @property
    def initial(self) -> ActionTable:
        """What it does at the initial observations."""
        return self.tabulated.initial

    @property
    def enough(self) -> bool:
        """Whether a headline number may be given."""
        return self.tabulated.enough


def read_data(options: argparse.Namespace, policies: Sequence[str]) -> Dataset:
    """The logged data, with the probability columns that the policies need."""
    source = options.data[0] if len(options.data) == 1 else options.data
    return read(
        source,
        observation=_names(options.observation),
        action=_names(options.action),
        reward=_names(options.reward),
        episode=options.episode,
        step=options.step,
        terminated=options.terminated,
        truncated=options.truncated,
        next_observation=_names(options.next_observation),
        weight=options.weight,
        probability=_probability(options, policies),
        number_of_actions=options.number_of_actions,
    )


def read_target(text: str, data: Dataset, options: argparse.Namespace, *, seed: int = 0) -> Target:
    """The policy that a text names, tabulated and held against the data."""
    policy = _policy(text, data, options)
    return Target(text, policy, tabulated(policy, data, draws=options.action_draws, seed=seed))


def coverage_words(target: Target) -> str:
    """How well the data covers a policy, in one line."""
    return target.tabulated.in_words()


def coverage_document(target: Target) -> dict[str, Any] | None:
    """The same for machines."""
    return target.tabulated.as_plain()


def _names(given: list[str]) -> str | list[str] | None:
    if not given:
        return None
    return given[0] if len(given) == 1 else given


def _probability(options: argparse.Namespace, policies: Sequence[str]) -> Any:
    """By policy, the columns of its probabilities; None leaves it to the reader."""
    wanted: dict[str, str | list[str]] = {}
    own = _names(options.probability)
    for text in policies:
        kind, colon, prefix = text.partition(":")
        if kind == COLUMNS and colon:
            if not prefix:
                raise PolicyError("columns: is followed by nothing; expected columns:PREFIX")
            wanted[prefix] = prefix
        elif text == COLUMNS:
            wanted[UNNAMED] = own or UNNAMED
    if set(wanted) <= {UNNAMED}:
        return own
    return wanted


def _policy(text: str, data: Dataset, options: argparse.Namespace) -> Policy:
    kind, colon, prefix = text.partition(":")
    if kind == COLUMNS:
        name = prefix if colon else UNNAMED
        return RowProbabilities(*data.recorded_probabilities(name))
    return load_policy(
        text,
        input=options.policy_input,
        output=options.policy_output,
        allow_code=options.allow_code,
        timeout=options.policy_timeout or TIMEOUT_SECONDS,
    )
