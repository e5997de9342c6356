"""Hyperparameters that no model can be built from are refused when they are written."""

import pytest

import fle
from fle.errors import SettingsError
from fle.models.families.ddpm import DDPM


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fle.GMM(components=-3), "GMM components: expected a whole number of at least 1"),
        (lambda: fle.GMM(components=0), "at least 1, got 0"),
        (lambda: fle.GMM(hidden=(64, 0)), "hidden: expected a whole number of at least 1, got 0"),
        (lambda: fle.Quantile(huber=-1.0), "huber: expected a number of at least 0, got -1"),
        (lambda: fle.Quantile(huber=float("nan")), "at least 0, got nan"),
        (
            lambda: fle.Recipe(scale_floor=-1.0),
            "scale_floor: expected at least 0 and finite, got -1",
        ),
        (lambda: fle.Recipe(scale_floor=float("nan")), "scale_floor: expected .* got nan"),
        (lambda: fle.Categorical(atoms=1), "Categorical atoms: expected .* at least 2, got 1"),
        (lambda: fle.Categorical(atoms=0), "at least 2, got 0"),
        (lambda: fle.Histogram(bins=-1), "bins: expected"),
        (lambda: fle.Quantile(quantiles=0), "quantiles: expected"),
        (lambda: fle.Autoregressive(components=0), "components: expected"),
        (lambda: fle.Flow(layers=0), "layers: expected"),
        (lambda: fle.Diffusion(pool=0), "pool: expected"),
        (lambda: DDPM(pool=0), "pool: expected"),
        (lambda: DDPM(diffusion_steps=0), "diffusion_steps: expected"),
        (lambda: fle.Gaussian(hidden=(-1,)), "hidden: expected"),
    ],
)
def test_what_cannot_be_is_refused(build, message):
    with pytest.raises(SettingsError, match=message):
        build()


def test_a_linear_model_and_no_floor_are_allowed():
    assert fle.GMM(hidden=()).hidden == ()
    assert fle.Recipe(scale_floor=0.0).given == {"scale_floor": 0.0}
