"""The return's distribution by importance sampling, doubly robust, and by the direct method."""

from dataclasses import replace

import numpy as np

from fle.baselines.critics import Critics, as_critics, drawn_actions, values_after
from fle.baselines.estimates import Atoms, Estimate
from fle.baselines.logged_episodes import FloatArray, IntArray, StepWeights, WeightedEpisodes
from fle.errors import SettingsError
from fle.fitting.evaluation import Evaluation
from fle.fitting.plans import Plan
from fle.returns import risk

Log = Plan | WeightedEpisodes
Critic = Evaluation | Critics
# Draws of what follows where an episode was cut off; and of returns at each row, where the policy
# acts and where the logged action is.
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
