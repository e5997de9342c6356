"""The return's distribution from logged episodes: importance sampling, doubly robust, stitching.

Stitching is model-free Monte Carlo (Fonteneau, Murphy, Wehenkel & Ernst 2013): start at an initial
observation, draw an action of the policy, take the outcome of the nearest logged row with that
action which no episode has used, and go on from where it led to.
"""

from dataclasses import replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fle.baselines.critics import Critics, as_critics, drawn_actions, values_after
from fle.baselines.logged_episodes import (
    Atoms,
    Estimate,
    FloatArray,
    IntArray,
    StepWeights,
    WeightedEpisodes,
)
from fle.data import Dataset
from fle.data.passes import centre_and_scale
from fle.errors import DataError, SettingsError
from fle.fitting.evaluation import Evaluation
from fle.fitting.plans import Plan
from fle.returns import risk

Log = Plan | WeightedEpisodes
Critic = Evaluation | Critics
# Draws of what follows where an episode was cut off; and of returns at each row, where the policy
# acts and where the logged action is.
DRAWS = 8
# Coordinates of observations and continuous actions up to which a nearest row is near.
FEW_DIMENSIONS = 4
# Rows that are looked at for one that no episode has used.
NEIGHBOURS = 16
# Share of the rows that all episodes together may use, and the most episodes.
USED_ROWS, MOST_EPISODES = 0.5, 5_000
# A discounted return is left where its discount is below this.
NEGLIGIBLE = 0.01
# In standard deviations: between codes that must agree, and between rows that are alike.
APART, JITTER = 1e3, 1e-6


def importance_sampling(log: Log, *, critic: Critic | None = None, seed: int = 0) -> Estimate:
    """Whole episodes, each with the weight prod pi/mu: no bias, and the largest variance.

    Weights do not sum to one. As a distribution, what is too much is cut off, and what is missing
    lies at the largest return (as in Chandak et al. 2021).

    Args:
        log: what `fle.plan` gave, or its `WeightedEpisodes`.
        critic: a fitted evaluation, which says what follows where an episode was cut off; without
            one, nothing does, and a remark says so.
        seed: of the critic's draws.
    """
    episodes = as_episodes(log)
    return _estimate("importance sampling", episodes, _whole(episodes, critic, seed), critic)


def weighted_importance_sampling(
    log: Log, *, critic: Critic | None = None, seed: int = 0
) -> Estimate:
    """Weights of whole episodes that sum to one: a little bias, far less variance."""
    episodes = as_episodes(log)
    atoms = replace(_whole(episodes, critic, seed), normalise=True)
    return _estimate("weighted importance sampling", episodes, atoms, critic)


def per_decision_importance_sampling(
    log: Log, *, critic: Critic | None = None, seed: int = 0
) -> Estimate:
    """Each reward has the weight of the decisions up to it (Precup, Sutton & Singh 2000).

    For the mean that is sum_t rho_{0:t} gamma^t r_t. For any h of the return Z = c_T, with c_t the
    rewards up to step t, it is h(0) + sum_t rho_{0:t} [h(c_{t+1}) - h(c_t)], which has no bias
    either, and gives the distribution.
    """
    episodes = as_episodes(log)
    return _estimate(
        "per-decision importance sampling", episodes, _by_decision(episodes, critic, seed), critic
    )


def weighted_per_decision_importance_sampling(
    log: Log, *, critic: Critic | None = None, seed: int = 0
) -> Estimate:
    """The same with weights whose mean at each step is one."""
    episodes = as_episodes(log)
    atoms = replace(_by_decision(episodes, critic, seed), normalise=True)
    return _estimate("weighted per-decision importance sampling", episodes, atoms, critic)


def as_episodes(log: Log) -> WeightedEpisodes:
    """The weighted episodes of a plan."""
    return log if isinstance(log, WeightedEpisodes) else WeightedEpisodes.of(log)


def cut_remark(episodes: WeightedEpisodes, critic: Critic | None) -> tuple[str, ...]:
    """What becomes of episodes that were cut off, if there are any."""
    if not episodes.cut.any():
        return ()
    discounts = episodes.plan.problem.gamma ** episodes.weights.lengths[episodes.cut]
    ends = "end with the critic's returns" if critic else "end there: nothing says what follows"
    return (
        f"{int(episodes.cut.sum()):,} of {episodes.number:,} episodes were cut off, and {ends},"
        f" which has a discount of {discounts.mean():.2g}",
    )


def _estimate(
    name: str, episodes: WeightedEpisodes, atoms: Atoms, critic: Critic | None
) -> Estimate:
    products = episodes.weights.last_products
    size = risk.effective_size(products, products) if products.any() else 0.0
    remarks = (*episodes.remarks, *cut_remark(episodes, critic))
    return Estimate(name, episodes.plan.data.reward_names, atoms, size, remarks)


def _whole(episodes: WeightedEpisodes, critic: Critic | None, seed: int) -> Atoms:
    """The return of each episode with the weight of the whole of it."""
    values, masses, owners = _endings(episodes, critic, seed)
    weights = StepWeights.of_whole_episodes(episodes.weights.last_products)
    return Atoms(values, masses, episodes.number + owners, weights, normalise=False)


def _by_decision(episodes: WeightedEpisodes, critic: Critic | None, seed: int) -> Atoms:
    """From what was earned before each row to what was earned with it."""
    number, rows = episodes.number, np.arange(len(episodes.rows))
    endings, masses, owners = _endings(episodes, critic, seed)
    inner = np.delete(rows, episodes.lasts)
    nothing = np.zeros((number, episodes.after.shape[1]))
    return Atoms(
        np.concatenate([nothing, episodes.before, episodes.after[inner], endings]),
        np.concatenate([np.ones(number), -np.ones(len(rows)), np.ones(len(inner)), masses]),
        np.concatenate(
            [np.arange(number), number + rows, number + inner, number + episodes.lasts[owners]]
        ),
        episodes.weights,
        normalise=False,
    )


def _endings(
    episodes: WeightedEpisodes, critic: Critic | None, seed: int
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Returns of whole episodes, several where a critic draws what follows: values, masses, whose.

    The masses of an episode sum to 1.
    """
    followed = episodes.cut if critic is not None else np.zeros(episodes.number, bool)
    ended, cut = np.flatnonzero(~followed), np.flatnonzero(followed)
    values = [episodes.after[episodes.lasts[ended]]]
    masses, owners = [np.ones(len(ended))], [ended]
    if critic is not None and len(cut):
        critics, generator = as_critics(critic, episodes.plan), np.random.default_rng(seed)
        drawn = values_after(episodes, critics, episodes.lasts[cut], DRAWS, generator)
        values.append(drawn.reshape(len(cut) * DRAWS, -1))
        masses.append(np.full(len(cut) * DRAWS, 1 / DRAWS))
        owners.append(np.repeat(cut, DRAWS))
    return np.concatenate(values), np.concatenate(masses), np.concatenate(owners)


def doubly_robust(
    log: Log,
    critic: Critic,
    *,
    draws: int = DRAWS,
    least_effective: float = 0.0,
    seed: int = 0,
) -> Estimate:
    """A critic's distribution, corrected by weighted episodes: right if either of both is.

    For any function h of the return, with c_t the rewards up to step t and G_t the critic's return
    at (x_t, a_t), Q_t = E h(c_t + gamma^t G_t) and V_t = sum_a pi(a | x_t) Q_t, the estimate is

        V_0 + sum_t rho_{0:t} [V_{t+1} - Q_t],

    with h(c) in place of V at a termination (Jiang & Li 2016, for all h). Weights are divided by
    their mean at each step. Episodes that were cut off end with V.

    Args:
        log: what `fle.plan` gave, or its `WeightedEpisodes`.
        critic: a fitted evaluation, or `Critics.cross_fitted`, so that none judges its own rows.
        draws: returns that stand for Q and for V at each row.
        least_effective: effective number of episodes below which weights are not followed further;
            from that step on the critic is believed.
        seed: of the draws.
    """
    if draws < 1:
        raise SettingsError(f"draws: expected at least 1, got {draws}")
    episodes = as_episodes(log)
    cut = shortened(episodes, least_effective)
    if cut is None:
        raise SettingsError(
            f"least_effective: expected at most {episodes.weights.effective_sizes[0]:.4g}, the"
            f" effective number of episodes at the first step, got {least_effective:g}"
        )
    atoms = _atoms(cut, as_critics(critic, cut.plan), draws, np.random.default_rng(seed))
    remarks = (*cut.remarks, *cut_remark(episodes, critic))
    most, whole = int(cut.weights.lengths.max()), int(episodes.weights.lengths.max())
    if most < whole:
        remarks += (
            f"weights are followed for {most:,} of {whole:,} steps, where"
            f" {least_effective:g} episodes are left; then the critic is believed",
        )
    size = float(cut.weights.effective_sizes[-1])
    return Estimate("doubly robust", cut.plan.data.reward_names, atoms, size, remarks)


def direct_method(critic: Evaluation, *, draws: int = 20_000) -> Estimate:
    """The fitted evaluation itself, as an estimate beside the others.

    Its standard errors are those of its draws alone: what is wrong with the fit is not seen.
    """
    values = critic.returns.some_draws(draws)
    return Estimate(
        "direct method",
        critic.return_names,
        sample_atoms(values),
        float(len(values)),
        ("the standard errors are those of drawing from the fit, not of fitting it",),
    )


def sample_atoms(values: FloatArray) -> Atoms:
    """Returns (n, d) that count alike, one an episode."""
    weights = StepWeights.of_whole_episodes(np.ones(len(values)))
    owners = len(values) + np.arange(len(values))
    return Atoms(values, np.ones(len(values)), owners, weights, normalise=True)


def shortened(episodes: WeightedEpisodes, least_effective: float) -> WeightedEpisodes | None:
    """Without the steps at which too few episodes have weight; None if that is all of them."""
    weights = episodes.weights
    short = np.flatnonzero(weights.effective_sizes < max(least_effective, 1e-300))
    if len(short) == 0:
        return episodes
    if short[0] == 0:
        return None
    kept = weights.steps < short[0]
    within = StepWeights(
        weights.episodes[kept],
        weights.steps[kept],
        weights.products[kept],
        np.minimum(weights.lengths, short[0]),
    )
    return replace(
        episodes,
        rows=episodes.rows[kept],
        weights=within,
        cut=episodes.cut | (weights.lengths > short[0]),
        before=episodes.before[kept],
        after=episodes.after[kept],
    )


def _atoms(
    episodes: WeightedEpisodes, critics: Critics, draws: int, generator: np.random.Generator
) -> Atoms:
    """V_0 of each episode, and V - Q of each row."""
    plan, number, rows = episodes.plan, episodes.number, episodes.rows
    data, steps, places = plan.data, episodes.weights.steps, np.arange(len(episodes.rows))
    over = data.terminations[rows]
    if plan.problem.horizon is not None:
        over = over | (steps + 1 >= plan.problem.horizon)
    ended, going = np.flatnonzero(over), np.flatnonzero(~over)
    firsts = rows[np.append(0, episodes.lasts[:-1] + 1)]
    starts = _at_start(episodes, critics, firsts, draws, generator)
    after = values_after(episodes, critics, going, draws, generator)
    logged = critics.draw(
        np.repeat(rows, draws),
        np.repeat(data.observations[rows], draws, axis=0),
        np.repeat(data.actions[rows], draws, axis=0),
        np.repeat(steps, draws),
        generator,
    ).reshape(len(rows), draws, -1)
    here = episodes.before[:, None] + (plan.problem.gamma**steps)[:, None, None] * logged
    parts = (
        (starts, np.arange(number), 1 / draws),
        (episodes.after[ended], number + ended, 1.0),
        (after, number + going, 1 / draws),
        (here, number + places, -1 / draws),
    )
    dim = data.return_dim
    values = np.concatenate([part.reshape(-1, dim) for part, _, _ in parts])
    each = [np.repeat(owner, part.size // max(dim * len(owner), 1)) for part, owner, _ in parts]
    masses = [np.full(len(one), mass) for one, (_, _, mass) in zip(each, parts, strict=True)]
    return Atoms(
        values, np.concatenate(masses), np.concatenate(each), episodes.weights, normalise=True
    )


def _at_start(
    episodes: WeightedEpisodes,
    critics: Critics,
    firsts: np.ndarray,
    draws: int,
    generator: np.random.Generator,
) -> FloatArray:
    """(n, draws, d) Returns of the policy from the start of each episode."""
    plan = episodes.plan
    actions = drawn_actions(episodes.opening, np.arange(len(firsts)), draws, generator)
    observations = plan.data.observations[firsts]
    return critics.draw(
        np.repeat(firsts, draws),
        np.repeat(observations, draws, axis=0),
        actions.reshape(-1, *actions.shape[2:]),
        np.zeros(len(firsts) * draws, int),
        generator,
    ).reshape(len(firsts), draws, -1)


def stitching(
    plan: Plan, *, episodes: int | None = None, rows: IntArray | None = None, seed: int = 0
) -> Estimate:
    """Returns of episodes stitched together from logged transitions, each used once.

    No model and no propensities. Where rows are far apart it has a bias, which its standard errors
    do not see; they are those of independent episodes.

    Args:
        plan: what `fle.plan` gave.
        episodes: how many; if not given, as many as use half of the rows.
        rows: of the plan's data, those that may be used; all if not given.
        seed: of starts and actions.
    """
    data, problem = plan.data, plan.problem
    _require_few_dimensions(data)
    generator = np.random.default_rng(seed)
    allowed = np.arange(len(data)) if rows is None else np.asarray(rows)
    steps = _most_steps(plan)
    if episodes is None:
        episodes = int(np.clip(USED_ROWS * len(allowed) / _usual_length(plan), 2, MOST_EPISODES))
    if episodes < 1:
        raise SettingsError(f"episodes: expected at least 1, got {episodes}")
    by_step = problem.rows == "step"
    tabular = data.number_of_observations is not None and data.discrete_actions
    shelf: Shelf = (Cells if tabular else Neighbours)(data, allowed, by_step, generator)
    returns = _stitched(plan, shelf, episodes, steps, generator)
    remarks = []
    if shelf.taken_again:
        remarks.append(
            f"{shelf.taken_again:,} of {shelf.taken:,} steps use a row that was used before"
        )
    if problem.horizon is None:
        remarks.append(
            f"returns end after {steps:,} steps, with a discount of {problem.gamma**steps:.2g}"
        )
    return Estimate(
        "stitching", data.reward_names, sample_atoms(returns), float(episodes), tuple(remarks)
    )


def _stitched(
    plan: Plan, shelf: "Shelf", episodes: int, most: int, generator: np.random.Generator
) -> FloatArray:
    """(episodes, d) All episodes take their steps together."""
    data, target, gamma = plan.data, plan.target, plan.problem.gamma
    initial = data.require_initial_observations()
    # As evenly as can be over the initial observations.
    starts = np.resize(generator.permutation(len(initial)), episodes)
    observations, table, places = initial[starts], target.initial, starts
    returns, running = np.zeros((episodes, data.return_dim)), np.arange(episodes)
    for step in range(most):
        actions = drawn_actions(table, places, 1, generator)[:, 0]
        rows = shelf.take(observations, actions, step)
        returns[running] += gamma**step * data.rewards[rows]
        going = ~data.terminations[rows]
        running, places = running[going], rows[going]
        if len(running) == 0:
            break
        observations, table = data.next_observations[places], target.following
    return returns


class Shelf(Protocol):
    """Logged rows, each to be taken once; how many were, and how many more than once."""

    taken: int
    taken_again: int

    def __init__(
        self, data: Dataset, allowed: IntArray, by_step: bool, generator: np.random.Generator
    ) -> None: ...

    def take(self, observations: npt.NDArray, actions: npt.NDArray, step: int) -> IntArray:
        """A row for each observation and action, no two of them the same."""


class Cells:
    """Discrete states and actions: rows of one pair are alike, and taken in random order."""

    def __init__(
        self, data: Dataset, allowed: IntArray, by_step: bool, generator: np.random.Generator
    ) -> None:
        self._actions, self._states = data.number_of_actions or 1, data.number_of_observations or 1
        self._steps = data.steps if by_step else None
        shuffled = generator.permutation(allowed)
        steps = 0 if self._steps is None else self._steps[shuffled]
        cells = self._cell(data.observations[shuffled], data.actions[shuffled], steps)
        order = np.argsort(cells, kind="stable")
        self._rows, self._sorted = shuffled[order], cells[order]
        self._next = np.zeros(len(order), int)
        self.taken = self.taken_again = 0

    def _cell(
        self, states: npt.NDArray, actions: npt.NDArray, steps: npt.NDArray | int
    ) -> IntArray:
        return (steps * self._states + states) * self._actions + actions

    def take(self, observations: npt.NDArray, actions: npt.NDArray, step: int) -> IntArray:
        """The next rows of each pair's order; from the beginning once all were taken."""
        wanted = self._cell(observations, actions, 0 if self._steps is None else step)
        first = np.searchsorted(self._sorted, wanted, side="left")
        sizes = np.searchsorted(self._sorted, wanted, side="right") - first
        missing = int(np.sum(sizes == 0))
        if missing:
            raise DataError(
                f"stitching needs a logged row for each action of the policy; {missing} of"
                f" {len(sizes)} at step {step} have none"
            )
        # The place in line among those that want the same pair now.
        order = np.argsort(wanted, kind="stable")
        line = np.empty(len(wanted), int)
        opens = np.append(True, wanted[order][1:] != wanted[order][:-1])
        ranks = np.arange(len(order))
        line[order] = ranks - np.maximum.accumulate(np.where(opens, ranks, 0))
        places = self._next[first] + line
        np.add.at(self._next, first, 1)
        self.taken += len(places)
        self.taken_again += int(np.sum(places >= sizes))
        return self._rows[first + places % sizes]


class Neighbours:
    """Vectors: the nearest rows that no episode has taken; codes and steps must agree."""

    def __init__(
        self, data: Dataset, allowed: IntArray, by_step: bool, generator: np.random.Generator
    ) -> None:
        from scipy.spatial import cKDTree

        self._generator, self._by_step = generator, by_step
        self._units = [
            centre_and_scale(part) if part.ndim > 1 else None
            for part in (data.observations, data.actions)
        ]
        steps = data.steps[allowed] if by_step and data.steps is not None else 0
        self._rows, self._free = allowed, np.ones(len(allowed), bool)
        self._tree = cKDTree(self._places(data.observations[allowed], data.actions[allowed], steps))
        self.taken = self.taken_again = 0

    def _places(
        self, observations: npt.NDArray, actions: npt.NDArray, steps: npt.NDArray | int
    ) -> FloatArray:
        """Where rows lie; what is equal is set apart a little, so that all have their turn."""
        columns = [
            APART * part[:, None] if unit is None else (part - unit[0]) / unit[1]
            for part, unit in zip((observations, actions), self._units, strict=True)
        ]
        columns.append(np.broadcast_to(APART * np.asarray(steps, float), len(actions))[:, None])
        places = np.concatenate(columns, axis=1)
        return places + JITTER * self._generator.standard_normal(places.shape)

    def take(self, observations: npt.NDArray, actions: npt.NDArray, step: int) -> IntArray:
        """The nearest that are left, in rounds; the nearest of all where none is."""
        count = min(NEIGHBOURS, len(self._rows))
        asked = self._places(observations, actions, step if self._by_step else 0)
        far, near = self._tree.query(asked, k=np.arange(1, count + 1))
        if np.any(far[:, 0] > APART / 2):
            raise DataError(
                f"stitching needs logged rows with the policy's actions; at step {step} some were"
                " never logged"
            )
        found = np.full(len(asked), -1)
        for column in range(count):
            # Only rows with the same codes, however many of these are left.
            possible = self._free[near[:, column]] & (far[:, column] < APART / 2)
            wanting = np.flatnonzero((found < 0) & possible)
            rows, first = np.unique(near[wanting, column], return_index=True)
            found[wanting[first]] = rows
            self._free[rows] = False
        again = found < 0
        found[again] = near[again, 0]
        self.taken += len(found)
        self.taken_again += int(again.sum())
        return self._rows[found]


def _require_few_dimensions(data: Dataset) -> None:
    parts = (data.observations, data.actions)
    width = sum(part.shape[1] for part in parts if part.ndim > 1)
    if width > FEW_DIMENSIONS:
        raise DataError(
            f"stitching needs at most {FEW_DIMENSIONS} coordinates of observations and continuous"
            f" actions, got {width}: the nearest row would not be near"
        )


def _most_steps(plan: Plan) -> int:
    problem = plan.problem
    if problem.horizon is not None:
        return problem.horizon
    if problem.gamma == 0:
        return 1
    return int(np.ceil(np.log(NEGLIGIBLE) / np.log(problem.gamma)))


def _usual_length(plan: Plan) -> float:
    """Steps of an episode, as far as the logged rows tell how often one ends."""
    return max(1.0, min(_most_steps(plan), 1 / max(float(plan.data.terminations.mean()), 1e-9)))
