"""The units of observations and actions are the user's: they change nothing."""

import numpy as np
import pytest
from quick_fits import TABLE, TABLE_TRAINING

import fle
from fle.data import Dataset, read
from fle.fitting.encoding import Encoder
from fle.fitting.remarks import data_remarks
from fle.policies import Behaviour, Normal, tabulated

ROWS = 1000
# Half a rounding step of a number near 1, in float64 and in float32.
STEP, SHORT_STEP = 2.0**-53, 2.0**-24
UNITS = [(1e-9, 0.0), (1e-9, 1e6), (1e-7, 0.0), (1e-3, 1e6), (1e4, -1e5), (1e9, 0.0), (1e9, 1e6)]


def arrays(scale=1.0, offset=0.0):
    """A log of separate transitions; `offset` counts in standard deviations."""
    generator = np.random.default_rng(0)
    here, following, start = (generator.standard_normal((n, 2)) for n in (ROWS, ROWS, 100))
    actions = here[:, :1] + generator.standard_normal((ROWS, 1))
    states = {"observations": here, "next_observations": following, "initial_observations": start}
    return {
        **{name: scale * (values + offset) for name, values in states.items()},
        "actions": scale * (actions + offset),
        "rewards": here[:, 0] + actions[:, 0],
        "terminations": np.zeros(ROWS, bool),
        "truncations": np.ones(ROWS, bool),
    }


def through_dataset(columns):
    return Dataset(**columns)


def through_reader(columns):
    return read(columns)


@pytest.mark.parametrize(("scale", "offset"), UNITS)
@pytest.mark.parametrize("make", [through_dataset, through_reader])
# The reader says what policies that work in float32 will not see.
@pytest.mark.filterwarnings("ignore:column 'observations':fle.errors.FLEWarning")
@pytest.mark.filterwarnings("ignore:column 'next_observations':fle.errors.FLEWarning")
@pytest.mark.filterwarnings("ignore:column 'actions':fle.errors.FLEWarning")
def test_encoded_inputs_are_the_same_in_all_units(make, scale, offset):
    plain, changed = make(arrays()), make(arrays(scale, offset))
    first, second = Encoder.standardising(plain), Encoder.standardising(changed)
    for name in ("observations", "next_observations", "initial_observations"):
        one, other = getattr(plain, name), getattr(changed, name)
        check_equal(first.observations(one), second.observations(other), offset)
    check_equal(first.actions(plain.actions), second.actions(changed.actions), offset)


def check_equal(one, other, offset):
    """Up to float32 at the end, and to what float64 held of the input: the offset costs digits.

    A value is rounded when it is shifted and scaled, and its centre likewise: 8 half steps in all.
    """
    assert one.std() == pytest.approx(1, abs=0.2)
    size = np.abs(one).max()
    np.testing.assert_allclose(
        one, other, rtol=0, atol=2 * SHORT_STEP * size + 8 * STEP * (size + abs(offset))
    )


@pytest.mark.parametrize(("scale", "offset"), [*UNITS, (1e-23, 0.0)])
def test_coverage_is_the_same_in_all_units(scale, offset):
    def figures(scale, offset):
        def policy(x):
            return x[:, :1], np.array([scale])

        data = Dataset(**arrays(scale, offset))
        covered = tabulated(Normal(policy), data).coverage
        return covered.share_unseen, covered.effective_sample_size

    # An offset may turn the order of two neighbours that are equally far to ten digits.
    assert figures(scale, offset) == pytest.approx(figures(1.0, 0.0), rel=1e-3)


@pytest.mark.parametrize(("scale", "offset"), UNITS)
def test_the_nearest_logged_action_is_the_same_in_all_units(scale, offset):
    def actions(scale, offset):
        data = Dataset(**arrays(scale, offset))
        asked = tabulated(Behaviour(), data)
        assert any("nearest" in remark for remark in asked.remarks)
        return np.concatenate([asked.following.actions, asked.initial.actions]) / scale - offset

    error = 8 * STEP * (5 + abs(offset))
    np.testing.assert_allclose(actions(scale, offset), actions(1.0, 0.0), rtol=0, atol=error)


@pytest.mark.parametrize("value", [0.1, 1e-7, 1e4 + 0.1])
def test_a_constant_feature_stays_constant(value):
    columns = arrays()
    columns["observations"][:, 1] = value
    data = Dataset(**columns)
    assert np.ptp(Encoder.standardising(data).observations(data.observations)[:, 1]) == 0


SIGNALS = {
    "plain": lambda s: s,
    "small": lambda s: 1e-7 * s,
    "large offset": lambda s: 1e4 + 1e-3 * s,
    "tiny beside its offset": lambda s: 1.0 + 1e-9 * s,
}


@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("where", ["observations", "actions"])
def test_the_estimate_sees_a_signal_in_any_units(name, where):
    """The reward is s / 2, with s = ±1 evenly logged, and the policy always meets s = 1."""
    signs = np.tile([-1.0, 1.0], ROWS // 2)[:, None]
    signal, unit = SIGNALS[name](signs), SIGNALS[name](1.0)
    other = np.random.default_rng(0).uniform(-1, 1, (ROWS, 1))
    fields = {"observations": other, "actions": other, where: signal}
    data = Dataset(
        **fields,
        rewards=signs[:, 0] / 2,
        next_observations=fields["observations"],
        terminations=np.ones(ROWS, bool),
        initial_observations=np.full((50, 1), unit) if where == "observations" else other[:50],
    )
    action = unit if where == "actions" else 0.0
    result = fle.evaluate(
        data,
        lambda x: np.full((len(x), 1), action),
        horizon=1,
        model=TABLE,
        recipe=TABLE_TRAINING,
    )
    # Drawn around the mean with the spread of the reward, 0.5: four standard errors of the draws,
    # and 0.02 for the fit.
    samples = result.returns.sample(20_000, seed=0)
    assert np.mean(samples) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(20_000) + 0.02)


def test_a_model_in_the_units_of_the_data_says_what_it_loses():
    """At 1e4, float32 moves in steps of 2^-10: nearly 2^-11 is lost, 0.49 standard deviations."""
    data = Dataset(**arrays(1e-3, 1e7))
    remarks = data_remarks(data, Encoder.raw(data), 1, "all")
    assert [remark.partition(":")[0] for remark in remarks] == [
        "observation 0",
        "observation 1",
        "action 0",
    ]
    assert "changes it by up to 0.00048" in remarks[0]
    assert data_remarks(data, Encoder.standardising(data), 1, "all") == []
    plain = Dataset(**arrays())
    assert data_remarks(plain, Encoder.raw(plain), 1, "all") == []
