import numpy as np
import pytest

from fle.paper.published import FILES, published


def test_tables_are_those_of_the_paper():
    # Spot checks against the printed tables 1 and 2.
    one = published("1d", "tv")
    assert one.means["gmm"][[0, 9, 18]] == pytest.approx([0.039, 0.044, 0.018])
    assert one.standard_errors["quantile"][[0, 9, 18]] == pytest.approx([0.011, 0.018, 0.019])
    assert published("2d", "tv").means["diffusion"][9] == pytest.approx(0.143)
    assert published("1d", "w1").means["categorical"][0] == pytest.approx(0.056)


@pytest.mark.parametrize(("experiment", "distance"), FILES)
def test_every_step_has_a_mean_an_error_and_a_floor(experiment, distance):
    table = published(experiment, distance)
    steps = {"1d": 20, "2d": 10}[experiment]
    methods = ["categorical", "diffusion", "gmm"]
    assert sorted(set(table.means) - {"quantile"}) == methods
    assert ("quantile" in table.means) == (experiment == "1d")
    for values in (*table.means.values(), *table.standard_errors.values(), table.floor):
        assert values.shape == (steps,)
        assert np.all((values > 0) & (values < 1))
