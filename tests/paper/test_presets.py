import jax.numpy as jnp
import numpy as np
import pytest

import fle
from fle.models.law import Sizes
from fle.paper.presets import METHODS, keys_of, setting_of, task_of

SIZES = {"1d": Sizes(30, 2, 1, False, True), "2d": Sizes(30, 2, 2, False, True)}
# Appendix of the paper: optimiser steps, learning rate.
PUBLISHED = {
    ("1d", "categorical"): (200, 1e-2),
    ("2d", "categorical"): (100, 3e-2),
    ("1d", "quantile"): (1000, 1e-3),
    ("1d-w1", "quantile"): (1000, 1e-1),
    ("1d", "gmm"): (20_000, 1e-4),
    ("2d", "gmm"): (10_000, 2e-4),
    ("1d", "diffusion"): (5_000, 1e-3),
    ("2d", "diffusion"): (15_000, 1e-3),
}


def paper(experiment, method):
    return setting_of(experiment, method, "paper", quick=False)


def built(setting, experiment):
    sizes = SIZES[experiment.removesuffix("-w1")]
    return setting.model.build(sizes, setting.resolved, np.random.default_rng(0))


@pytest.mark.parametrize(("experiment", "method"), PUBLISHED)
def test_paper_preset_has_the_published_training(experiment, method):
    recipe = paper(experiment, method).resolved
    steps, rate = PUBLISHED[experiment, method]
    assert (recipe.steps, recipe.batch_size, recipe.draws) == (steps, 500, 1)
    assert np.allclose(recipe.learning_rates(3, 20), rate)
    # The model is what the last step left: weight 1 there.
    assert recipe.average_rates()[-1] == 1
    assert (recipe.start, recipe.weight_decay, recipe.trend) == ("fresh", 0.0, False)
    assert (recipe.component_prior, recipe.beta) == (0.0, 0.0)
    # One step, then the previous fit; every row counts the same.
    assert (recipe.trace, recipe.occupancy) == (0.0, False)


@pytest.mark.parametrize(("experiment", "method"), PUBLISHED)
def test_paper_preset_has_the_published_network(experiment, method):
    law = built(paper(experiment, method), experiment)
    hidden = [weight.shape[1] for weight in law.network.weights[:-1]]
    assert hidden == ([256, 256] if method == "diffusion" else [32])


def test_a_plain_network_is_a_relu_perceptron():
    network = built(paper("1d", "categorical"), "1d").network
    inputs = np.random.default_rng(1).normal(size=32).astype(np.float32)
    hidden = np.maximum(inputs @ np.asarray(network.weights[0]) + np.asarray(network.biases[0]), 0)
    expected = hidden @ np.asarray(network.weights[1]) + np.asarray(network.biases[1])
    assert np.allclose(network(jnp.asarray(inputs)), expected, atol=1e-5)


@pytest.mark.parametrize(("experiment", "atoms", "limit"), [("1d", 100, 1.5), ("2d", 30, 4.0)])
def test_categorical_range_is_that_of_the_paper(experiment, atoms, limit):
    setting = paper(experiment, "categorical")
    d = SIZES[experiment].returns
    centre, scale = setting.model.frame(np.random.default_rng(0).normal(size=(10, d)))
    assert np.all(centre == 0)
    assert np.all(scale == limit)
    assert built(setting, experiment).atoms == atoms


# Of thirty coordinates, some of a start lie beyond those of as few logged rows.
@pytest.mark.filterwarnings("ignore:.*lie outside what was logged:fle.FLEWarning")
@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("pair", METHODS)
def test_a_setting_knows_the_recipe_that_evaluate_will_use(pair, quick):
    experiment, preset = pair
    dim = SIZES[experiment.removesuffix("-w1")].returns
    task = fle.tasks.CombinationLock(horizon=1, reward_dim=dim)
    data = fle.Dataset(**task.offline_data(1_000, seed=0))
    for method in METHODS[pair]:
        setting = setting_of(experiment, method, preset, quick=quick)
        planned = fle.plan(
            data, task.target_policy, horizon=1, model=setting.model, recipe=setting.recipe
        )
        assert planned.recipe == setting.resolved


@pytest.mark.parametrize("method", METHODS["2d", "ours"])
def test_ours_is_what_evaluate_does_by_default(method):
    setting = setting_of("2d", method, "ours", quick=False)
    assert setting.model == fle.models.family(method)()
    assert setting.recipe == fle.Recipe()


@pytest.mark.parametrize("pair", METHODS)
def test_every_setting_can_be_built_and_written(pair):
    experiment, preset = pair
    for method in METHODS[pair]:
        setting = setting_of(experiment, method, preset, quick=True)
        plain = setting.as_plain()
        assert plain["rows"] < setting_of(experiment, method, preset, quick=False).rows
        assert "a " not in [str(value)[:2] for value in plain["model"].values()]
        assert built(setting, experiment).noise_size >= 1


def test_seeds_of_the_slow_diffusion_are_limited():
    keys = list(keys_of("2d", ("diffusion", "gmm"), ("ours", "paper"), range(5)))
    number = {
        (method, preset): sum((k.method, k.preset) == (method, preset) for k in keys)
        for method in ("diffusion", "gmm")
        for preset in ("ours", "paper")
    }
    assert number == {
        ("diffusion", "ours"): 5,
        ("diffusion", "paper"): 3,
        ("gmm", "ours"): 5,
        ("gmm", "paper"): 5,
    }
    assert task_of("2d").reward_dim == 2
