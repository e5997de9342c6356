"""With fresh parameters at every stage, targets still come from the fit before."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fle
from fle.models.law import Sizes
from fle.models.objectives import Transition
from fle.recipe import ONE_FIT

ROWS = 4000
TRAINING = fle.Recipe(
    steps=300, batch_size=250, learning_rate=1e-2, weight_decay=0.0, draws=2, start="fresh"
)


def two_steps():
    """A first step without reward, then two rewards of correlation 0.9, and the end."""
    steps = np.arange(ROWS) % 2
    rewards = np.random.default_rng(0).multivariate_normal([0, 0], [[1, 0.9], [0.9, 1]], ROWS)
    return fle.Dataset(
        observations=steps,
        actions=np.zeros(ROWS, int),
        rewards=steps[:, None] * rewards,
        next_observations=np.ones(ROWS, int),
        terminations=steps == 1,
        truncations=np.zeros(ROWS, bool),
        steps=steps,
        initial_observations=np.zeros(1, int),
    )


@pytest.mark.filterwarnings("ignore::fle.FLEWarning")
def test_returns_of_the_first_step_are_those_of_the_second():
    result = fle.evaluate(
        two_steps(),
        np.ones(1),
        horizon=2,
        model=fle.Autoregressive(components=8, hidden=(32, 32)),
        recipe=TRAINING,
        seed=0,
    )
    returns = result.returns.sample(20_000, seed=0)
    # Drawn from fresh parameters, the second return would know nothing of the first.
    assert np.corrcoef(returns.T)[0, 1] == pytest.approx(0.9, abs=0.05)
    assert returns.std(axis=0) == pytest.approx([1, 1], abs=0.1)


@pytest.mark.parametrize(
    "spec",
    [
        fle.GMM(hidden=(8,)),
        fle.Autoregressive(hidden=(8,)),
        fle.Flow(hidden=8),
        fle.Flow("coupling", hidden=8, context=(8, 4), layers=2),
        fle.Diffusion(hidden=(8, 8), sampling_steps=4),
    ],
    ids=["gmm", "autoregressive", "flow", "coupling flow", "diffusion"],
)
def test_a_target_depends_on_the_previous_model_alone(spec):
    sizes = Sizes(3, 2, 2, False, True)
    previous, model = (spec.build(sizes, ONE_FIT, np.random.default_rng(seed)) for seed in (0, 1))
    objective = spec.objective(ONE_FIT)
    generator = np.random.default_rng(2)
    transition = Transition(
        inputs=jnp.zeros(5),
        reward=jnp.asarray([0.1, 0.2]),
        discount=jnp.full(2, 0.9),
        next_observation=jnp.asarray(generator.standard_normal(3), jnp.float32),
        next_actions=jnp.eye(2),
        probabilities=jnp.asarray([0.3, 0.7]),
        noise=jnp.asarray(generator.random(objective.prepare_noise_size(model)), jnp.float32),
    )
    uniforms = jnp.asarray(generator.random(objective.target_noise_size(model)), jnp.float32)

    @eqx.filter_jit
    def target(by, of):
        made = objective.target(by, of, objective.prepare(by, of, transition), uniforms, 3)
        return jnp.concatenate([jnp.ravel(part) for part in jax.tree.leaves(made)])

    np.testing.assert_array_equal(target(model, previous), target(previous, previous))
    assert not np.allclose(target(model, previous), target(model, model))
