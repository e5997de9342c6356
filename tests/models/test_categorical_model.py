from itertools import product

import jax.numpy as jnp
import numpy as np
import pytest
from model_outputs import (
    build,
    condition,
    draw,
    loss_of_row,
    prepared,
    transition,
    with_outputs,
)

import fle
from fle.errors import ModelError


def law_with_mass(mass):
    """A law that gives these masses (atoms, ...) at every input."""
    law = build(fle.Categorical(atoms=mass.shape[0], hidden=()), mass.ndim)
    with np.errstate(divide="ignore"):
        return with_outputs(law, np.maximum(np.log(mass.reshape(-1)), -1e4))


def projected(mass, reward, discount):
    row = transition(reward, discount)
    return np.asarray(prepared(fle.Categorical(), law_with_mass(mass), row)).reshape(mass.shape)


def naive_projection(mass, reward, discount):
    """Every atom's mass to its two neighbours a coordinate, one corner at a time."""
    atoms, d = mass.shape[0], mass.ndim
    result = np.zeros(mass.shape)
    for place in product(range(atoms), repeat=d):
        point = np.clip(reward + discount * (2 * np.array(place) / (atoms - 1) - 1), -1, 1)
        position = (point + 1) / 2 * (atoms - 1)
        left = np.minimum(np.floor(position).astype(int), atoms - 2)
        for corner in product((0, 1), repeat=d):
            share = np.prod(np.where(corner, position - left, 1 - position + left))
            result[tuple(left + corner)] += share * mass[place]
    return result


@pytest.mark.parametrize(
    ("reward", "discount", "expected"),
    [
        # Atoms -1, -0.5, 0, 0.5, 1 with all mass at 0: it moves to the reward.
        (0.5, 1.0, [0, 0, 0, 1, 0]),
        # 0.1 is a fifth of the way from 0 to 0.5.
        (0.1, 1.0, [0, 0, 0.8, 0.2, 0]),
        # -0.75 is half way from -1 to -0.5.
        (-0.75, 1.0, [0.5, 0.5, 0, 0, 0]),
        # Outside the range: all to the edge.
        (3.0, 1.0, [0, 0, 0, 0, 1]),
        (-3.0, 1.0, [1, 0, 0, 0, 0]),
    ],
)
def test_projection_of_one_atom_by_hand(reward, discount, expected):
    mass = np.array([0, 0, 1.0, 0, 0])
    assert np.allclose(projected(mass, reward, discount), expected, atol=1e-6)


def test_projection_shrinks_by_hand():
    # Half at -1 and half at 1, discount 1/4: -0.25 and 0.25, each half way to its outer neighbour.
    mass = np.array([0.5, 0, 0, 0, 0.5])
    assert np.allclose(projected(mass, 0.0, 0.25), [0, 0.25, 0.5, 0.25, 0], atol=1e-6)
    # Terminated: discount 0, and the whole law is the reward.
    assert np.allclose(projected(mass, 0.5, 0.0), [0, 0, 0, 1, 0], atol=1e-6)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("discount", [0.0, 0.6, 1.0])
def test_projection_equals_the_naive_loop(d, discount):
    generator = np.random.default_rng(d)
    mass = generator.dirichlet(np.ones(6**d)).reshape((6,) * d)
    for scale in (0.2, 1.5):
        reward = scale * generator.standard_normal(d)
        result = projected(mass, reward, discount)
        assert np.allclose(result, naive_projection(mass, reward, discount), atol=1e-5)
        assert result.sum() == pytest.approx(1, abs=1e-5)


def test_projection_keeps_the_mean_inside_the_range():
    generator = np.random.default_rng(3)
    mass = generator.dirichlet(np.ones(9))
    points = np.linspace(-1, 1, 9)
    assert projected(mass, 0.15, 0.7) @ points == pytest.approx(
        0.15 + 0.7 * mass @ points, abs=1e-5
    )


def test_target_averages_over_next_actions():
    # The action is the input: with weights +50 and -50 on two atoms, action 1 has its mass at 1 and
    # action -1 at -1.
    weights = [[0.0, 0.0], [-50.0, 50.0]]
    law = with_outputs(build(fle.Categorical(atoms=2, hidden=())), np.zeros(2), weights)
    row = transition(0.0, 1.0, probabilities=(0.3, 0.7), next_actions=[-1.0, 1.0])
    assert np.allclose(prepared(fle.Categorical(), law, row), [0.3, 0.7], atol=1e-6)


def test_loss_is_the_cross_entropy():
    mass = np.array([0.2, 0.3, 0.5])
    target = jnp.asarray([0.5, 0.25, 0.25])
    # -(0.5 log 0.2 + 0.25 log 0.3 + 0.25 log 0.5) = 0.80472 + 0.30099 + 0.17329
    loss = loss_of_row(fle.Categorical(), law_with_mass(mass), target)
    assert float(loss) == pytest.approx(1.27900, abs=1e-4)


def test_draw_picks_atoms_by_mass():
    law = law_with_mass(np.array([[0.1, 0.2], [0.3, 0.4]]))
    masses = condition(law, np.zeros(2))
    # Cumulative, last coordinate fastest: (-1,-1) to 0.1, (-1,1) to 0.3, (1,-1) to 0.6, (1,1).
    expected = {0.05: (-1, -1), 0.2: (-1, 1), 0.5: (1, -1), 0.95: (1, 1)}
    for level, point in expected.items():
        assert np.allclose(draw(law, masses, np.array([level])), point)


@pytest.mark.parametrize("spec", [fle.Categorical(), fle.Histogram()])
def test_grids_refuse_five_dimensions_and_say_why(spec):
    with pytest.raises(ModelError, match=r"\^5 = .* cells .* Use fewer cells a coordinate, or GMM"):
        build(spec, returns=5)


def test_atoms_fall_on_the_lattice_of_the_targets():
    generator = np.random.default_rng(0)
    # -2, -1.5, ..., 4 in single precision, with the rounding of sums: 13 points for 21 atoms.
    targets = 0.5 * generator.integers(-4, 9, (500, 1))
    noisy = np.float32(targets * (1 + 1e-7 * generator.standard_normal((500, 1))))
    (centre,), (scale,) = fle.Categorical(atoms=21).frame(noisy)
    atoms = centre + scale * np.linspace(-1, 1, 21)
    assert atoms * 2 == pytest.approx(np.round(atoms * 2), abs=1e-4)
    assert atoms[0] <= targets.min()
    assert targets.max() <= atoms[-1]
    assert np.diff(atoms) == pytest.approx(0.5, rel=1e-5)


def test_a_sum_on_the_lattice_is_projected_exactly():
    # y is 0 or 2 with equal chances on atoms 0, 1, 2; r = 1 is one atom: mass at 1 and 3, of which
    # the latter is beyond the grid of this frame and stays at its edge.
    mass = np.array([0.5, 0.0, 0.5])
    assert projected(mass, [1.0], [1.0]) == pytest.approx([0.0, 0.5, 0.5], abs=1e-6)


def test_targets_without_a_lattice_have_their_range():
    targets = np.random.default_rng(0).standard_normal((500, 1))
    (centre,), (scale,) = fle.Categorical(atoms=21).frame(targets)
    assert centre - scale < targets.min() < targets.max() < centre + scale
