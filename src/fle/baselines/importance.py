"""Importance sampling of the return's distribution, by whole episodes and by decision."""

from dataclasses import replace

import numpy as np

from fle.baselines.critics import Critics, as_critics, values_after
from fle.baselines.estimates import Atoms, Estimate
from fle.baselines.logged_episodes import FloatArray, IntArray, StepWeights, WeightedEpisodes
from fle.fitting.evaluation import Evaluation
from fle.fitting.plans import Plan
from fle.returns import risk

Log = Plan | WeightedEpisodes
Critic = Evaluation | Critics
# Draws of what follows where an episode was cut off.
DRAWS = 8


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
