"""Models whose network outputs are chosen by hand."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from fle.models import Sizes, Transition


def build(spec, returns=1):
    """The model of a spec with `hidden=()`, for one observation and one action coordinate."""
    return spec.build(Sizes(1, 1, returns, False, False), np.random.default_rng(0))


def with_outputs(model, outputs, weights=None):
    """The model with these outputs everywhere, or outputs + inputs @ weights."""
    outputs = jnp.asarray(outputs, jnp.float32)
    if weights is None:
        weights = np.zeros((2, outputs.size))
    return eqx.tree_at(
        lambda m: (m.network.weights[0], m.network.biases[0]),
        model,
        (jnp.asarray(weights, jnp.float32), outputs),
    )


def transition(reward, discount, probabilities=(1.0,), next_actions=None):
    """A row in the model's units; next actions are 0 unless given."""
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
