"""A target policy is asked once; its answers are held against the data, and kept for large logs."""

import hashlib
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy as np

from fle.data import Dataset
from fle.data.episodes import starts_episode
from fle.data.passes import centre_and_scale, require_memory
from fle.errors import PolicyError, SettingsError
from fle.files import not_through_links
from fle.policies.action_table import ActionSpace, ActionTable, Array
from fle.policies.function_policies import BATCH_SIZE, Policy, Question, stated
from fle.policies.row_policies import RowPolicy, Settled, first_rows_of, settle

# Conventions, not theorems: where a reader is warned, and where no headline number is given.
WARN_UNSEEN = 0.05
WARN_EFFECTIVE_SHARE = 0.02
MOST_UNSEEN = 0.5
LEAST_EFFECTIVE_ROWS = 30

# Of an action and its probability, in float64, while they are checked.
TABLE_BYTES = 3 * 16
NEIGHBOURS = 50
MOST_QUERIES, MOST_ROWS = 4096, 100_000
# With more features than this a search tree helps no more, and a smaller part must do.
WIDE = 8
MOST_QUERIES_IF_WIDE, MOST_ROWS_IF_WIDE = 1024, 20_000
# The share of the logged actions themselves that counts as unseen among their neighbours.
OWN_UNSEEN = 0.01
FOLDER = "answers"
# Rows of a block that are asked again, as one and the same key may be that of two policies.
ASKED_AGAIN = 4


@dataclass(frozen=True)
class Coverage:
    """Whether the data shows what the policy does.

    `share_unseen` is the share of the policy's actions that the data never shows there, and
    `effective_sample_size` how many rows the log is worth for it, out of `rows`. If not `enough`,
    an estimate rests on extrapolation, and no headline number should be given.
    """

    share_unseen: float
    effective_sample_size: float
    rows: int
    enough: bool
    warnings: tuple[str, ...]

    def in_words(self) -> str:
        """Both figures in one line."""
        return (
            f"{self.share_unseen:.1%} of its actions were never logged there; the"
            f" {self.rows:,} rows are worth about {self.effective_sample_size:,.0f}"
        )

    def as_plain(self) -> dict[str, Any]:
        """The figures and the verdict, for machines."""
        return {name: value for name, value in asdict(self).items() if name != "warnings"}


@dataclass(frozen=True, eq=False)
class TabulatedPolicy:
    """What a target policy does wherever the data will ask, and how well the data covers it.

    Attributes:
        following: at each row's next observation; that of a terminated row is never used.
        initial: at the initial observations.
        coverage: None for the policy that logged the data, which covers itself.
        remarks: reservations: what the log did not say about the policy, then about coverage.
        opening: at the first row of each episode; None where that cannot be known.
        asked: the policy, where more rows will be asked for.
    """

    following: ActionTable
    initial: ActionTable
    coverage: Coverage | None
    remarks: tuple[str, ...]
    opening: ActionTable | None = None
    asked: Any = None

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
    candidates = data.number_of_actions or draws * (data.action_dim or 1)
    needed = TABLE_BYTES * candidates * len(data)
    require_memory(needed, f"The table of what the policy does, {candidates} a row,", len(data))
    settled = settle(policy, data, seed=seed)
    following, initial = settled.tables(data, draws, seed)
    covered = None if settled.logged_the_data else coverage(data, following, initial)
    remarks = (*settled.remarks, *(() if covered is None else covered.warnings))
    opening = _opening(settled, data, initial, draws, seed)
    return TabulatedPolicy(following, initial, covered, remarks, opening)


def _opening(
    policy: Settled, data: Dataset, initial: ActionTable, draws: int, seed: int
) -> ActionTable | None:
    """At the first row of each episode: read off the initial observations, or asked."""
    if data.episodes is None or not data.whole_episodes:
        return None
    rows = np.flatnonzero(starts_episode(data.episodes))
    firsts, _ = first_rows_of(data, data.episodes, data.require_initial_observations())
    started = np.flatnonzero(firsts >= 0)
    if len(started) == len(rows):
        return initial.at(started)
    if isinstance(policy.policy, RowPolicy):
        return None
    generator = np.random.default_rng([seed, 3])
    space = ActionSpace.of(data)
    return policy.table(Question(data.observations[rows], space, draws, generator))


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


def coverage(data: Dataset, following: ActionTable, initial: ActionTable) -> Coverage:
    """Compare the policy's actions, as `tabulated` gives them, with the logged ones.

    Where the evaluation will ask, at next observations of rows that go on and at initial ones, the
    policy's actions are held against those logged at the same discrete state, or at the 50 nearest
    observations (each feature scaled by its standard deviation). Steps are ignored.

    Discrete actions. Unseen is what was never logged at that state; of continuous observations, at
    no observation at all. With m(a|x) the logged frequencies there plus one row of the overall
    ones, and p the policy, the effective sample size is n / E[sum_a p(a|x)² / m(a|x)], which is
    that of importance weights p/m, in expectation. A policy known by draws looks less random than
    it is, by up to one part in the number of draws. For a single logged action a row, as
    `Behaviour` gives, the figure is that of a deterministic policy and means little.

    Continuous actions. Unseen is what lies farther from all neighbouring actions than 99 % of the
    logged actions do, so that the logging policy itself scores about 0.01. The effective sample
    size is that of the weights p/m at the neighbouring actions, both densities smoothed with a
    Gaussian kernel of Silverman's width; it depends on that width. Unseen actions count for
    nothing.
    """
    wide = data.observations.ndim > 1 and data.observations.shape[1] > WIDE
    most_queries, most_rows = (
        (MOST_QUERIES_IF_WIDE, MOST_ROWS_IF_WIDE) if wide else (MOST_QUERIES, MOST_ROWS)
    )
    observations, actions, probabilities = _queries(data, following, initial, most_queries)
    shown = np.arange(len(data)) if data.weights is None else np.flatnonzero(data.weights > 0)
    # In random order, so that ties between equally near rows favour none.
    rows = np.random.default_rng(0).permutation(shown)[:most_rows]
    if data.discrete_actions:
        policy = by_action(actions, probabilities, data.number_of_actions or 1)
        unseen, efficiency = _discrete(data, rows, observations, policy)
    else:
        unseen, efficiency = _continuous(data, rows, observations, actions, probabilities)
    return _judged(unseen, efficiency, len(data))


def _judged(unseen: float, efficiency: float, rows: int) -> Coverage:
    effective = efficiency * rows
    enough = unseen <= MOST_UNSEEN and effective >= LEAST_EFFECTIVE_ROWS
    remarks = []
    if unseen > WARN_UNSEEN or efficiency < WARN_EFFECTIVE_SHARE or not enough:
        remarks.append(
            f"the data hardly shows what the policy does: {unseen:.1%} of its actions were never"
            f" logged there, and the {rows} rows are worth about {effective:.0f} for it"
        )
    if not enough:
        remarks.append(
            f"too little for a headline number: expected at most {MOST_UNSEEN:.0%} unseen actions"
            f" and {LEAST_EFFECTIVE_ROWS} effective rows; log data closer to the policy"
        )
    return Coverage(unseen, effective, rows, enough, tuple(remarks))


def _queries(
    data: Dataset, following: ActionTable, initial: ActionTable, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where the policy is asked, and what it does there; a random part if there are many."""
    start = data.require_initial_observations()
    if len(following) != len(data) or len(initial) != len(start):
        raise PolicyError(
            f"expected tables of {len(data)} and {len(start)} rows, as tabulated gives for this"
            f" data; got {len(following)} and {len(initial)}"
        )
    generator = np.random.default_rng(0)
    going_on = np.flatnonzero(~data.terminations)
    total = len(going_on) + len(start)
    parts = []
    for observations, table, places in (
        (data.next_observations, following, going_on),
        (start, initial, np.arange(len(start))),
    ):
        count = min(len(places), max(1, round(most * len(places) / total)))
        chosen = generator.choice(places, count, replace=False)
        parts.append((observations[chosen], table.actions[chosen], table.probabilities[chosen]))
    first, second = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    return first, second, np.concatenate([part[2] for part in parts])


def by_action(actions: np.ndarray, probabilities: np.ndarray, count: int) -> np.ndarray:
    """(q, A) probabilities of all actions from those of any candidates."""
    places = np.arange(len(actions))[:, None] * count + actions
    sums = np.bincount(places.ravel(), probabilities.ravel(), minlength=len(actions) * count)
    return sums.reshape(len(actions), count)


def _discrete(
    data: Dataset, rows: np.ndarray, observations: np.ndarray, policy: np.ndarray
) -> tuple[float, float]:
    logged, count = data.actions[rows], policy.shape[1]
    overall = np.bincount(logged, minlength=count)
    if data.number_of_observations is not None:
        # Only of states that are asked about: there may be far more of them.
        asked, places = np.unique(observations, return_inverse=True)
        found = np.isin(data.observations[rows], asked)
        state = np.searchsorted(asked, data.observations[rows][found])
        flat = np.bincount(state * count + logged[found], minlength=len(asked) * count)
        local = flat.reshape(len(asked), count)[places].astype(float)
        seen = local > 0
    else:
        near = neighbours(data.observations[rows], observations, NEIGHBOURS)
        local = np.stack([(logged[near] == action).sum(axis=1) for action in range(count)], 1)
        seen = np.broadcast_to(overall > 0, local.shape)
    unseen = float((policy * ~seen).sum(axis=1).mean())
    # One action in place of none, so that an action never logged has a weight that is finite.
    prior = (overall + 1 / count) / (overall.sum() + 1)
    behaviour = (local + prior) / (local.sum(axis=1, keepdims=True) + 1)
    square = float((policy**2 / behaviour).sum(axis=1).mean())
    return unseen, min(1.0, 1 / square)


def _continuous(
    data: Dataset,
    rows: np.ndarray,
    observations: np.ndarray,
    actions: np.ndarray,
    probabilities: np.ndarray,
) -> tuple[float, float]:
    centre, scale = centre_and_scale(data.actions[rows])
    logged, asked = (data.actions[rows] - centre) / scale, (actions - centre) / scale
    fitted = data.observations[rows]
    if data.number_of_observations is not None:
        # States are codes, and the nearest to a code are its own rows, if there are enough.
        fitted, observations = fitted[:, None], observations[:, None]
    number = min(len(rows), max(len(observations), NEIGHBOURS))
    sample = np.random.default_rng(0).choice(len(rows), number, replace=False)
    own = neighbours(fitted, fitted[sample], NEIGHBOURS + 1)
    gaps = np.linalg.norm(logged[own] - logged[sample][:, None], axis=2)
    gaps[own == sample[:, None]] = np.inf
    reach = float(np.quantile(gaps.min(axis=1), 1 - OWN_UNSEEN))

    cloud = logged[neighbours(fitted, observations, NEIGHBOURS)]
    seen = np.empty(asked.shape[:2])
    for candidate in range(asked.shape[1]):
        distances = np.linalg.norm(cloud - asked[:, candidate, None], axis=2)
        seen[:, candidate] = distances.min(axis=1) <= reach
    kept = probabilities * seen
    spread = max(float(np.median(cloud.std(axis=1))), reach, 1e-9)
    size, dimension = cloud.shape[1:]
    width = spread * size ** (-1 / (dimension + 4))
    target, behaviour = np.zeros(cloud.shape[:2]), np.zeros(cloud.shape[:2])
    for candidate in range(asked.shape[1]):
        target += kept[:, candidate, None] * _kernel(cloud - asked[:, candidate, None], width)
    for neighbour in range(size):
        behaviour += _kernel(cloud - cloud[:, neighbour, None], width) / size
    weights = target / behaviour
    total, square = weights.sum(), (weights**2).sum()
    return float((probabilities * (1 - seen)).sum(axis=1).mean()), (
        float(total**2 / (weights.size * square)) if square > 0 else 0.0
    )


def _kernel(differences: np.ndarray, width: float) -> np.ndarray:
    return np.exp(-0.5 * (differences**2).sum(axis=2) / width**2)


def neighbours(fitted: np.ndarray, asked: np.ndarray, count: int) -> np.ndarray:
    """(q, k) rows of `fitted` nearest to each observation, features in standard deviations."""
    centre, scale = centre_and_scale(fitted)
    fitted, asked = (fitted - centre) / scale, (asked - centre) / scale
    count = min(count, len(fitted))
    if fitted.shape[1] > WIDE:
        return _neighbours_by_products(fitted, asked, count)
    from scipy.spatial import cKDTree

    # Balancing is slow where many observations are equal.
    tree = cKDTree(fitted, balanced_tree=False, compact_nodes=False)
    _, rows = tree.query(asked, k=np.arange(1, count + 1))
    return np.asarray(rows)


def _neighbours_by_products(fitted: np.ndarray, asked: np.ndarray, count: int) -> np.ndarray:
    """All distances, from matrix products; the nearest rows come in no order.

    Features are centred, so that float32 will do.
    """
    fitted, asked = fitted.astype(np.float32), asked.astype(np.float32)
    # The square of the asked observation is the same for all rows.
    half_squares = 0.5 * (fitted**2).sum(axis=1)
    nearest = [
        np.argpartition(half_squares - block @ fitted.T, count - 1, axis=1)[:, :count]
        for block in np.array_split(asked, -(-len(asked) // 256))
    ]
    return np.concatenate(nearest)


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers by blocks of rows, each in a file of its own, if there is a folder.

    key: of the policy, by its answers at all rows of a plan, and of the data.
    """

    folder: Path | None
    draws: int
    seed: int

    @classmethod
    def of(cls, data: Dataset, fingerprint: str, draws: int, seed: int) -> "Answers":
        """Beside a prepared log; of any other data none is kept.

        fingerprint: of the policy's answers at the rows of the plan.
        """
        if not data.prepared:
            return cls(None, draws, seed)
        told = f"{fingerprint} {data.fingerprint} {draws} {seed}".encode()
        name = hashlib.sha256(told).hexdigest()[:32]
        kept = Path(data.prepared[0]) / FOLDER
        # A link that somebody put there would lead elsewhere: nothing is kept.
        own = not kept.is_symlink() and not (kept / name).is_symlink()
        return cls(kept / name if own else None, draws, seed)

    def at(self, policy: Settled, data: Dataset, spans: list[tuple[int, int]]) -> ActionTable:
        """At the next observations of all rows of the data.

        spans: the rows of the log that the data has, from and to, one block after the other.
        """
        first, tables = 0, []
        for start, stop in spans:
            part = slice(first, first + stop - start)
            tables.append(self._block(policy, data, part, start))
            first = part.stop
        normal = [table.normal for table in tables if table.normal is not None]
        together = None
        if len(normal) == len(tables):
            means, stds = zip(*normal, strict=True)
            together = (np.concatenate(means), np.concatenate(stds))
        probabilities = np.concatenate([table.probabilities for table in tables])
        if all(len(table.listed) == 1 < len(table) for table in tables):
            return ActionTable.of_probabilities(probabilities)
        actions = np.concatenate([table.actions for table in tables])
        return ActionTable(actions, probabilities, together)

    def _block(self, policy: Settled, data: Dataset, part: slice, start: int) -> ActionTable:
        observations = data.next_observations[part]
        path = None if self.folder is None else self.folder / f"{start}.npz"
        known = None if path is None else _read(path, len(observations))
        if known is not None and self._is_right(known, policy, data, part, start):
            return known
        table = self._asked(policy, data, part, start)
        if path is not None:
            _write(path, table)
        return table

    def _asked(self, policy: Settled, data: Dataset, part: slice, start: int) -> ActionTable:
        # Draws depend on the rows, and not on what else is asked.
        generator = np.random.default_rng([self.seed, 4, start])
        space = ActionSpace.of(data)
        question = Question(data.next_observations[part], space, self.draws, generator)
        return policy.policy.table(question)

    def _is_right(
        self, known: ActionTable, policy: Settled, data: Dataset, part: slice, start: int
    ) -> bool:
        """Whether the policy says the same again, at a few rows; of one that draws, none can be."""
        few = slice(part.start, min(part.start + ASKED_AGAIN, part.stop))
        again = self._asked(policy, data, few, start)
        if again.candidates != known.candidates or again.actions.ndim != known.actions.ndim:
            return False
        if (again.normal is None) != (known.normal is None):
            return False
        if known.normal is not None and again.normal is not None:
            pairs = zip(again.normal, known.normal, strict=True)
            return all(np.allclose(here, there[: len(here)]) for here, there in pairs)
        if not np.allclose(again.probabilities, known.probabilities[: len(again)]):
            return False
        drawn = np.ptp(again.probabilities) == 0 and len(again.listed) > 1 < again.candidates
        return drawn or np.array_equal(again.actions, known.actions[: len(again)])


def _write(path: Path, table: ActionTable) -> None:
    """Whole or not at all; what cannot be kept is asked again."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    content: dict[str, Any] = {"probabilities": table.probabilities, "actions": table.listed}
    if table.normal is not None:
        content |= {"mean": table.normal[0], "std": table.normal[1]}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb", opener=not_through_links) as file:
            np.savez(file, **content)
        temporary.replace(path)


def _read(path: Path, rows: int) -> ActionTable | None:
    """None where there is none, or no whole one: its parts have checksums."""
    if not path.is_file() or path.is_symlink():
        return None
    # Whoever passed the folder on may have put any file there, and a parser of damaged bytes may
    # raise anything.
    try:
        with ZipFile(path) as archive:
            # As it was written: what is packed may be of any size.
            if any(entry.compress_type != ZIP_STORED for entry in archive.infolist()):
                return None
        with np.load(path, allow_pickle=False) as content:
            found = dict(content)
        probabilities, actions = found["probabilities"], found["actions"]
        if len(probabilities) != rows or probabilities.dtype.kind != "f":
            return None
        actions = np.broadcast_to(actions, (rows, *actions.shape[1:]))
        normal = (found["mean"], found["std"]) if "mean" in found else None
        if normal is not None and {part.shape for part in normal} != {actions[:, 0].shape}:
            return None
        return ActionTable(actions, probabilities, normal)
    except Exception:
        return None
