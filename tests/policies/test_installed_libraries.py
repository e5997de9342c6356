"""The adapters against the libraries themselves, where these are installed; see also the fakes."""

import numpy as np
import pytest

from fle.policies import tabulate
from fle.policies.loading import from_d3rlpy, from_stable_baselines3

DRAWS = 400


def observations(width):
    return np.random.default_rng(0).standard_normal((50, width)).astype(np.float32)


def test_the_probabilities_of_stable_baselines3():
    library = pytest.importorskip("stable_baselines3")
    model = library.PPO("MlpPolicy", "CartPole-v1", n_steps=64, device="cpu", seed=0)
    seen = observations(4)
    table = tabulate(from_stable_baselines3(model), seen, number_of_actions=2, action_dim=None)
    acted = np.mean([model.predict(seen)[0] for _ in range(DRAWS)], axis=0)
    # Five standard errors of a frequency.
    assert np.abs(acted - table.probabilities[:, 1]).max() < 5 * 0.5 / np.sqrt(DRAWS)


def test_the_draws_of_stable_baselines3():
    library = pytest.importorskip("stable_baselines3")
    model = library.SAC("MlpPolicy", "Pendulum-v1", device="cpu", seed=0)
    seen = observations(3)
    table = tabulate(
        from_stable_baselines3(model), seen, number_of_actions=None, action_dim=1, draws=DRAWS
    )
    acted = np.stack([model.predict(seen)[0] for _ in range(DRAWS)], axis=1)
    error = (acted.mean(axis=1) - table.actions.mean(axis=1)) / acted.std(axis=1)
    assert np.abs(error).max() < 5 * np.sqrt(2 / DRAWS)
    assert np.abs(table.actions).max() <= 2


def test_draws_and_greedy_actions_of_d3rlpy():
    library = pytest.importorskip("d3rlpy")
    seen = observations(3)
    algorithm = library.algos.SACConfig().create(device="cpu")
    algorithm.create_impl(observation_shape=(3,), action_size=1)
    greedy = from_d3rlpy(algorithm, actions="greedy")
    table = tabulate(greedy, seen, number_of_actions=None, action_dim=1)
    assert np.allclose(table.actions[:, 0], algorithm.predict(seen))
    drawn = tabulate(
        from_d3rlpy(algorithm), seen, number_of_actions=None, action_dim=1, draws=DRAWS
    )
    acted = np.stack([algorithm.sample_action(seen) for _ in range(DRAWS)], axis=1)
    error = (acted.mean(axis=1) - drawn.actions.mean(axis=1)) / acted.std(axis=1)
    assert np.abs(error).max() < 5 * np.sqrt(2 / DRAWS)
