"""Hyperparameters that no model can be built from are refused when they are written."""

import pytest

import fle
from fle.errors import SettingsError
from fle.models.families.ddpm import DDPM


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fle.GMM(components=-3), "GMM: components must be a whole number of at least 1"),
        (lambda: fle.GMM(components=0), "at least 1, got 0"),
        (lambda: fle.GMM(hidden=(64, 0)), "hidden must be a whole number of at least 1, got 0"),
        (lambda: fle.Quantile(huber=-1.0), "huber must be a number of at least 0, got -1"),
        (lambda: fle.Quantile(huber=float("nan")), "at least 0, got nan"),
        (lambda: fle.Recipe(scale_floor=-1.0), "scale_floor must be at least 0 and finite, got -1"),
        (lambda: fle.Recipe(scale_floor=float("nan")), "scale_floor must be .* got nan"),
        (lambda: fle.Categorical(atoms=1), "Categorical: atoms must be .* at least 2, got 1"),
        (lambda: fle.Categorical(atoms=0), "at least 2, got 0"),
        (lambda: fle.Histogram(bins=-1), "bins must be"),
        (lambda: fle.Quantile(quantiles=0), "quantiles must be"),
        (lambda: fle.Autoregressive(components=0), "components must be"),
        (lambda: fle.Flow(layers=0), "layers must be"),
        (lambda: fle.Diffusion(pool=0), "pool must be"),
        (lambda: DDPM(pool=0), "pool must be"),
        (lambda: DDPM(diffusion_steps=0), "diffusion_steps must be"),
        (lambda: fle.Gaussian(hidden=(-1,)), "hidden must be"),
    ],
)
def test_what_cannot_be_is_refused(build, message):
    with pytest.raises(SettingsError, match=message):
        build()


def test_a_linear_model_and_no_floor_are_allowed():
    assert fle.GMM(hidden=()).hidden == ()
    assert fle.Recipe(scale_floor=0.0).given == {"scale_floor": 0.0}
