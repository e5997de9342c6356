import numpy as np
import pytest
from quick_fits import bandit

import fle
from fle.fitting.model_choice import chosen_model as chosen
from fle.fitting.problem import Question


def chosen_model(model, data, gamma=1.0, horizon=1):
    return chosen(model, data, Question(gamma, horizon, "all", None))


NEEDY = ("linear", "linear-quadratic", "reward-mixture")


def data(rows, rewards):
    generator = np.random.default_rng(0)
    return bandit(generator.normal(size=(rows, rewards)))


@pytest.mark.parametrize(
    ("rows", "rewards", "expected", "reason"),
    [
        (100, 1, fle.GMM, "scalar returns"),
        (5_000, 3, fle.Autoregressive, "joint distribution of 3 coordinates"),
        (4_999, 3, fle.GMM, "4,999 rows are few"),
    ],
)
def test_auto_goes_by_dimension_and_rows(rows, rewards, expected, reason):
    chosen, (note,) = chosen_model("auto", data(rows, rewards))
    assert chosen == expected()
    assert note.startswith(f"model: {expected.__name__}, ")
    assert reason in note


@pytest.mark.parametrize("name", [n for n in fle.models.names() if n not in NEEDY])
def test_each_name_gives_its_model(name):
    chosen, notes = chosen_model(name, data(10, 1))
    assert chosen.name == name
    assert not notes


@pytest.mark.parametrize("name", NEEDY)
def test_a_model_that_needs_hyperparameters_says_so(name):
    with pytest.raises(fle.FLEError, match="needs hyperparameters"):
        chosen_model(name, data(10, 1))


def test_a_name_close_to_one():
    with pytest.raises(fle.FLEError, match="Did you mean 'autoregressive'"):
        chosen_model("autoregresive", data(10, 1))


def on_a_lattice(values, ends=True):
    rewards = np.resize(np.asarray(values, float), 60)
    return fle.Dataset(
        observations=np.zeros(60, int),
        actions=np.zeros(60, int),
        rewards=rewards,
        next_observations=np.zeros(60, int),
        terminations=np.full(60, ends) & (np.arange(60) % 3 == 2),
        truncations=np.full(60, not ends) & (np.arange(60) % 3 == 2),
        episodes=np.arange(60) // 3,
    )


@pytest.mark.parametrize(
    ("values", "ends", "horizon", "points"),
    [
        # From -3 to 2, which is only ever earned at an end, after 0 at most.
        ([-1, 0, 2], True, 3, 6),
        # From 15 to 27 by 2: nothing ends early, so that all have three terms.
        ([5, 7, 9], False, 3, 7),
        # An episode may end after a reward of 5: from 5 to 27 by 1.
        ([7, 9, 5], True, 3, 23),
        ([0, 5], True, 1, 2),
        ([0, 0.1], True, 150, 151),
    ],
)
def test_few_possible_returns_get_probabilities_of_their_own(values, ends, horizon, points):
    chosen, (note,) = chosen_model("auto", on_a_lattice(values, ends), horizon=horizon)
    assert chosen == fle.Categorical(atoms=points)
    assert f"the {points} returns that sums of the logged rewards can be" in note


@pytest.mark.parametrize(
    ("values", "gamma", "horizon"),
    [([0, 0.1], 1.0, 151), ([0, 1], 0.9, None), ([0, 1], 0.9, 5), ([1, 2**0.5, np.pi], 1.0, 2)],
)
def test_many_possible_returns_do_not(values, gamma, horizon):
    chosen, _ = chosen_model("auto", on_a_lattice(values), gamma, horizon)
    assert chosen == fle.GMM()
