"""Logged data and Monte Carlo returns from Gymnasium environments."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import DataError, SettingsError
from fle.tasks.environments import checked_actions, number_of_actions, open_environments

Array = NDArray[Any]
# (observations (n, ...), generator) -> actions (n, ...)
ActingPolicy = Callable[[Array, np.random.Generator], ArrayLike]


def collect(
    make_environment: Callable[[], Any],
    policy: ActingPolicy,
    *,
    rows: int,
    seed: int,
    environments: int = 64,
) -> dict[str, Any]:
    """Exactly `rows` transitions of a policy, as arrays for `fle.Dataset(**data)`.

    Rows are sorted by episode. A time limit truncates, which is not termination, and such a row
    keeps the observation it led to. The last rows of episodes that were under way when the log
    ended are truncated as well. `initial_observations` are all that a reset gave.

    Args:
        make_environment: makes a single environment, or one that is vectorised already (such as
            `gymnasium.make_vec("CartPole-v1", 64, "vector_entry_point")`, many times faster).
        policy: batches of observations -> batches of actions.
        rows: number of transitions.
        seed: seed of environments and policy.
        environments: how many single environments run side by side.
    """
    if rows < 1:
        raise SettingsError(f"rows must be at least 1; {rows} came.")
    environment_seed, generator = _seeded(seed)
    batch = open_environments(make_environment, environments)
    try:
        observations = batch.reset(environment_seed)
        initial, episodes, count = [observations], np.arange(batch.size), 0
        everywhere = np.ones(batch.size, dtype=bool)
        pieces: list[dict[str, Array]] = []
        number_of_episodes = batch.size
        while count < rows:
            actions = checked_actions(
                policy(observations, generator), batch.size, batch.action_space
            )
            outcome = batch.step(actions, everywhere)
            columns = {
                "observations": observations,
                "actions": actions,
                "rewards": outcome.rewards,
                "next_observations": outcome.next_observations,
                "terminations": outcome.terminations,
                # A row is one or the other; what ended for good needs no time limit.
                "truncations": outcome.truncations & ~outcome.terminations,
                "episodes": episodes,
            }
            pieces.append({name: column[outcome.valid] for name, column in columns.items()})
            count += int(outcome.valid.sum())
            new = int(outcome.started.sum())
            episodes[outcome.started] = number_of_episodes + np.arange(new)
            number_of_episodes += new
            observations = outcome.observations
            initial.append(observations[outcome.started])
    finally:
        batch.close()
    data: dict[str, Any] = {
        name: np.concatenate([piece[name] for piece in pieces])[:rows] for name in pieces[0]
    }
    order = np.argsort(data["episodes"], kind="stable")
    data = {name: column[order] for name, column in data.items()}
    if len(order) != rows:
        raise DataError(f"{rows} rows were to be collected, but {len(order)} came.")
    last = np.append(np.diff(data["episodes"]) != 0, True)
    data["truncations"] |= last & ~data["terminations"]
    data["initial_observations"] = np.concatenate(initial)
    data["number_of_actions"] = number_of_actions(batch.action_space)
    return data


def monte_carlo_returns(
    make_environment: Callable[[], Any],
    policy: ActingPolicy,
    *,
    episodes: int,
    gamma: float,
    horizon: int,
    seed: int,
    environments: int = 64,
) -> NDArray[np.float64]:
    """Discounted returns of independent complete episodes: (episodes,), or (episodes, d).

    Every episode runs until it terminates or reaches `horizon` steps. With gamma < 1 the part cut
    off is at most gamma^horizon times the largest return from there on. An environment that
    truncates earlier is refused, since its returns would lack their end.

    Args:
        make_environment: as in `collect`; without a time limit shorter than the horizon, e.g.
            `gymnasium.make(name, max_episode_steps=-1)`.
        policy: batches of observations -> batches of actions.
        episodes: number of returns.
        gamma: discount, at most 1.
        horizon: number of steps after which a return is complete.
        seed: seed of environments and policy.
        environments: how many single environments run side by side.
    """
    if episodes < 1 or horizon < 1 or not 0 <= gamma <= 1:
        raise SettingsError(
            "episodes and horizon must be at least 1 and gamma lie in [0, 1]; "
            f"episodes={episodes}, horizon={horizon}, gamma={gamma} came."
        )
    environment_seed, generator = _seeded(seed)
    batch = open_environments(make_environment, min(environments, episodes))
    rounds = []
    try:
        # Rounds rather than "the first so many to finish", which would favour short episodes.
        for begun in range(0, episodes, batch.size):
            observations = batch.reset(environment_seed if begun == 0 else None)
            playing = np.arange(batch.size) < episodes - begun
            counted = int(playing.sum())
            for elapsed in range(horizon):
                actions = checked_actions(
                    policy(observations, generator), batch.size, batch.action_space
                )
                outcome = batch.step(actions, playing)
                if elapsed == 0:
                    returns = np.zeros_like(outcome.rewards)
                returns[playing] += gamma**elapsed * outcome.rewards[playing]
                cut = playing & outcome.truncations & ~outcome.terminations
                if cut.any() and elapsed + 1 < horizon:
                    raise SettingsError(
                        f"An episode was truncated after {elapsed + 1} steps, before the horizon "
                        f"of {horizon}: its return is not complete. Make the environment without "
                        "a time limit (max_episode_steps=-1, or a large one), or lower horizon."
                    )
                playing = playing & ~(outcome.terminations | outcome.truncations)
                if not playing.any():
                    break
                observations = outcome.observations
            rounds.append(returns[:counted])
    finally:
        batch.close()
    return np.concatenate(rounds)


def _seeded(seed: int) -> tuple[int, np.random.Generator]:
    """A seed for the environments and a generator for the policy, independent of each other."""
    for_environments, for_policy = np.random.SeedSequence(seed).spawn(2)
    return int(for_environments.generate_state(1)[0]), np.random.default_rng(for_policy)
