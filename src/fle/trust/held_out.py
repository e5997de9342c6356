"""Calibration without ground truth: the logging policy, predicted for episodes not fitted to."""

import warnings

import numpy as np

from fle.baselines.critics import Critics, drawn_actions, fitted_to
from fle.data import Dataset
from fle.data.episodes import ends_episode, position_in_episode, starts_episode
from fle.errors import DataError, FLEWarning
from fle.fitting.plans import Plan
from fle.fitting.problem import Problem
from fle.fitting.sampling import Purpose, Randomness
from fle.policies import ActionTable, load_policy, settle, tabulated
from fle.returns.calibration import Calibration

# Every so many-th episode is held out, at random; and how many are predicted at most.
FOLDS, MOST_EPISODES = 5, 2_000
# Fewer say nothing of uniformity.
LEAST_EPISODES = 20
DRAWS = 99


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
