"""Fitted evaluations asked about rows they were not fitted to, and whether they are calibrated."""

import warnings
from dataclasses import asdict, dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from fle.baselines.logged_episodes import FloatArray, IntArray, WeightedEpisodes
from fle.data import Dataset
from fle.data.episodes import ends_episode, position_in_episode, starts_episode
from fle.errors import DataError, FLEWarning, SettingsError
from fle.fitting.cross_fitting import dealt_rows
from fle.fitting.evaluation import Evaluation
from fle.fitting.planning import evaluate
from fle.fitting.plans import Plan
from fle.fitting.problem import Problem, sum_of_discounts
from fle.fitting.replicates import Resampling
from fle.fitting.targets import Purpose, Randomness, draws, in_data_units
from fle.policies import ActionTable, Policy, load_policy, settle, tabulated
from fle.recipe import Recipe
from fle.returns.distances import Calibration

# Every so many-th episode is held out, at random; and how many are predicted at most.
FOLDS, MOST_EPISODES = 5, 2_000
# Fewer say nothing of uniformity.
LEAST_EPISODES = 20
DRAWS = 99
# Replicates times steps of a horizon that a doubly robust estimate asks.
ASKED = 200


def fitted_to(plan: Plan, data: Dataset, policy: Policy) -> Evaluation:
    """An evaluation as the plan says, of other rows or another policy, and without opinions."""
    problem = plan.problem
    return evaluate(
        data,
        policy,
        gamma=problem.gamma,
        horizon=problem.horizon,
        model=plan.model,
        rows=problem.rows,
        stages=problem.stages if problem.horizon is None else None,
        recipe=Recipe(**asdict(plan.recipe)),
        seed=plan.provenance.seed,
        second_opinions=False,
        anyway=True,
    )


@dataclass(frozen=True, eq=False)
class Critics:
    """Evaluations of one problem, and which of them judge each row of the data.

    owners: (n,) the unit of every row, a fold or an episode. judges: (units, evaluations) which may
    be asked about its rows; of several, one at random for every draw. None where one judges all.
    """

    evaluations: tuple[Evaluation, ...]
    owners: IntArray | None = None
    judges: npt.NDArray[np.bool_] | None = None

    @classmethod
    def cross_fitted(cls, plan: Plan, policy: Policy, *, folds: int = 2) -> Self:
        """Fitted as the plan says, but for the rows: no episode is judged by a fit that saw it.

        Bias of a fit that knows its rows by heart is thus kept out (Chernozhukov et al. 2018).
        policy: the one the plan was made for. folds: parts into which episodes are dealt.
        """
        settled = settle(policy, plan.data, seed=plan.provenance.seed)
        parts = dealt_rows(plan.data, folds, plan.provenance.seed)
        fitted = tuple(
            fitted_to(plan, plan.data.subset(parts != part), settled)
            for part in range(parts.max() + 1)
        )
        return cls(fitted, parts, np.eye(len(fitted), dtype=bool))

    @classmethod
    def out_of_bag(cls, plan: Plan, evaluation: Evaluation) -> Self | None:
        """The replicates of an evaluation, each for the episodes that it was not fitted to.

        That is cross-fitting for which nothing is fitted: a replicate lacks a third of the
        episodes, and all but one of a hundred are lacked by one of ten. Replicates begin at the fit
        to all of them, of which a small part may be left (`REFIT_LEFT`). None without replicates.
        """
        refits = evaluation.refits
        if refits is None or refits.counts.shape[1] < 2:
            return None
        # Each is asked step by step: of a long horizon, fewer of them.
        most = max(ASKED // (evaluation.horizon or 1), 2)
        alone = replace(evaluation, refits=None, second_opinions=None)
        fitted = tuple(replace(alone, fits=fits) for fits in refits.fits[:most])
        counts = refits.counts[: len(fitted)].T
        judges = counts == counts.min(axis=1, keepdims=True)
        return cls(fitted, Resampling.of(plan.data).owners, judges)

    def _judge(self, rows: IntArray, generator: np.random.Generator) -> IntArray:
        """(k,) Which evaluation is asked about each of these rows."""
        if self.owners is None or self.judges is None:
            return np.zeros(len(rows), int)
        may = self.judges[self.owners[rows]]
        if self.judges.sum(axis=1).max() == 1:
            return may.argmax(axis=1)
        return (may * (generator.random(may.shape) + 1)).argmax(axis=1)

    def draw(
        self,
        rows: IntArray,
        observations: npt.NDArray,
        actions: npt.NDArray,
        steps: IntArray,
        generator: np.random.Generator,
    ) -> FloatArray:
        """(k, d) One return after each observation and action, at these steps.

        rows: of the data, to tell which evaluation is asked.
        """
        parts = self._judge(rows, generator)
        drawn = np.empty((len(rows), len(self.evaluations[0].return_names)))
        for part, evaluation in enumerate(self.evaluations):
            mine = np.flatnonzero(parts == part)
            inputs = evaluation.encoder.inputs(observations[mine], actions[mine])
            drawn[mine] = _drawn(evaluation, inputs, steps[mine], generator)
        return drawn


def as_critics(critic: Evaluation | Critics, plan: Plan) -> Critics:
    """One evaluation or several, of the return that the plan is about."""
    critics = Critics((critic,)) if isinstance(critic, Evaluation) else critic
    for evaluation in critics.evaluations:
        asked, given = plan.problem, evaluation.problem
        if (asked.gamma, asked.horizon) != (given.gamma, given.horizon):
            raise SettingsError(
                f"critic: expected an evaluation of the {asked.in_words()}, got one of the"
                f" {given.in_words()}"
            )
        if evaluation.return_names != plan.data.reward_names:
            raise SettingsError(
                f"critic: expected returns {plan.data.reward_names}, got {evaluation.return_names}"
            )
    return critics


def _drawn(
    evaluation: Evaluation, inputs: npt.NDArray, steps: IntArray, generator: np.random.Generator
) -> FloatArray:
    encoder, horizon = evaluation.encoder, evaluation.horizon
    if horizon is None:
        steps = np.zeros_like(steps)
    result = np.empty((len(inputs), len(evaluation.return_names)))
    order = np.argsort(steps, kind="stable")
    starts = np.searchsorted(steps[order], np.arange(steps.max(initial=0) + 2))
    for step in np.unique(steps):
        group = order[starts[step] : starts[step + 1]]
        fitted = evaluation.fits[-1 if horizon is None else horizon - 1 - step]
        left = None if horizon is None else horizon - int(step)
        offset = encoder.reward_centre * sum_of_discounts(evaluation.gamma, left)
        drawn = draws(fitted, inputs[group], generator)
        result[group] = in_data_units(fitted, drawn, encoder.reward_unit, offset)
    return result


def drawn_actions(
    table: ActionTable, rows: IntArray, draws: int, generator: np.random.Generator
) -> npt.NDArray:
    """(k, draws, ...) Actions of the policy at rows of a table, spread evenly over its law."""
    levels = np.cumsum(table.probabilities[rows], axis=1)
    shift = generator.random(len(rows))
    # One draw at a time: all of them beside all candidates would not fit in memory.
    picks = [
        np.sum(levels <= (((number + shift) / draws) * levels[:, -1])[:, None], axis=1)
        for number in range(draws)
    ]
    chosen = np.minimum(np.stack(picks, axis=1), table.candidates - 1)
    return table.actions[rows[:, None], chosen]


def values_after(
    episodes: WeightedEpisodes,
    critics: Critics,
    places: IntArray,
    draws: int,
    generator: np.random.Generator,
) -> FloatArray:
    """(k, draws, d) Whole returns: what was earned up to these rows, and a draw of what follows.

    places: among the rows of the episodes, none of them terminated or the last of a horizon.
    """
    plan, rows = episodes.plan, episodes.rows[places]
    actions = drawn_actions(plan.target.following, rows, draws, generator)
    steps = episodes.weights.steps[places] + 1
    drawn = critics.draw(
        np.repeat(rows, draws),
        np.repeat(plan.data.next_observations[rows], draws, axis=0),
        actions.reshape(-1, *actions.shape[2:]),
        np.repeat(steps, draws),
        generator,
    ).reshape(len(rows), draws, plan.data.return_dim)
    discounts = plan.problem.gamma**steps
    return episodes.after[places][:, None] + discounts[:, None, None] * drawn


def calibration_of(plan: Plan) -> Calibration:
    """Fit the logging policy as the plan says to four fifths of the episodes, predict the others.

    A prediction is the fitted law of the return at an episode's first observation and action. What
    came is held against it: the episode's own return, and, where it was cut off, that plus a draw
    of the fit for what follows. If the fit is right this has the predicted law too, so that like
    is compared with like. It takes about as long as another evaluation.
    """
    data, problem, seed = plan.data, plan.problem, plan.provenance.seed
    if data.episodes is None or not data.whole_episodes:
        raise DataError("calibration needs whole episodes, and the log does not have them")
    generator = Randomness(seed, Purpose.CALIBRATION).generator
    names = np.unique(data.episodes)
    if len(names) < FOLDS * LEAST_EPISODES:
        raise DataError(
            f"calibration needs {FOLDS * LEAST_EPISODES} episodes, a fifth of which is predicted;"
            f" the log has {len(names)}"
        )
    held = generator.permutation(names)[: len(names) // FOLDS]
    rows = np.isin(data.episodes, held)
    settled = settle(load_policy("behaviour"), data, seed=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FLEWarning)
        fitted = fitted_to(plan, data.subset(~rows), settled)
    some = data.subset(np.isin(data.episodes, held[:MOST_EPISODES]))
    table = tabulated(settled, some, seed=seed).following
    critics = Critics((fitted,))
    seen, cut = _filled_up(some, critics, table, problem, generator)
    firsts = np.repeat(np.flatnonzero(starts_episode(np.asarray(some.episodes))), DRAWS)
    at_start = np.zeros(len(firsts), int)
    drawn = critics.draw(
        firsts, some.observations[firsts], some.actions[firsts], at_start, generator
    )
    others, complete = data.subset(~rows).observed_returns(problem.gamma, problem.horizon)
    return Calibration.of(
        data.reward_names,
        drawn.reshape(len(seen), DRAWS, -1),
        seen,
        others[complete] if complete.sum() > 1 else others,
        cut,
        generator,
    )


def _filled_up(
    data: Dataset,
    critics: Critics,
    table: ActionTable,
    problem: Problem,
    generator: np.random.Generator,
) -> tuple[np.ndarray, int]:
    """(n, d) What each episode earned, a draw of what follows those cut off, and their number."""
    seen, complete = data.observed_returns(problem.gamma, problem.horizon)
    episodes = np.asarray(data.episodes)
    ends = np.flatnonzero(ends_episode(episodes))[~complete]
    if len(ends):
        steps = position_in_episode(episodes)[ends] + 1
        actions = drawn_actions(table, ends, 1, generator)[:, 0]
        after = data.next_observations[ends]
        follows = critics.draw(ends, after, actions, steps, generator)
        seen[~complete] += problem.gamma ** steps[:, None] * follows
    return seen, len(ends)
