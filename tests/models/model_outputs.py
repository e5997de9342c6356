"""Laws whose network outputs are chosen by hand, and what they say, each compiled as a whole.

Outside a compiled function every operation on arrays is a program of its own: 50 for a density.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from fle.models.law import Sizes
from fle.models.objectives import Transition
from fle.recipe import ONE_FIT


def build(spec, returns=1, recipe=ONE_FIT):
    """The law of a spec with `hidden=()`, for one observation and one action coordinate."""
    return spec.build(Sizes(1, 1, returns, False, False), recipe, np.random.default_rng(0))


@eqx.filter_jit
def log_prob(law, inputs, returns):
    return law.log_prob(inputs, returns)


@eqx.filter_jit
def condition(law, inputs):
    return law.condition(inputs)


@eqx.filter_jit
def draw(law, conditioned, uniforms):
    return law.draw(conditioned, uniforms)


@eqx.filter_jit
def loss_of_row(spec, law, target, recipe=ONE_FIT):
    """The loss of one row, whose inputs are zeros, against its target."""
    targets = jax.tree.map(lambda a: jnp.asarray(a)[None], target)
    return spec.objective(recipe).loss(law, jnp.zeros((1, 2)), targets)


@eqx.filter_jit
def prepared(spec, law, row, recipe=ONE_FIT):
    """What is known of a row's target, where the previous law is the same."""
    return spec.objective(recipe).prepare(law, law, row)


def with_outputs(law, outputs, weights=None):
    """The law with these outputs everywhere, or outputs + inputs @ weights."""
    outputs = jnp.asarray(outputs, jnp.float32)
    if weights is None:
        weights = np.zeros((2, outputs.size))
    return eqx.tree_at(
        lambda m: (m.network.weights[0], m.network.biases[0]),
        law,
        (jnp.asarray(weights, jnp.float32), outputs),
    )


def transition(reward, discount, probabilities=(1.0,), next_actions=None):
    """A row in the law's units; next actions are 0 unless given."""
    reward = jnp.atleast_1d(jnp.asarray(reward, jnp.float32))
    if next_actions is None:
        next_actions = np.zeros(len(probabilities))
    return Transition(
        inputs=jnp.zeros(2),
        reward=reward,
        discount=jnp.broadcast_to(jnp.float32(discount), reward.shape),
        next_observation=jnp.zeros(1),
        next_actions=jnp.asarray(next_actions, jnp.float32).reshape(-1, 1),
        probabilities=jnp.asarray(probabilities, jnp.float32),
    )
