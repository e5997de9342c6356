import numpy as np
import pytest
from quick_fits import bandit

import fle
from fle.fitting.planning import _chosen_model as chosen_model

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
