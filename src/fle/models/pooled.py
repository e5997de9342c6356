"""What models that learn to remove noise have in common: few draws, disturbed again and again."""

from abc import abstractmethod
from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from fle.models.base import (
    GradientModel,
    NextLaws,
    Transition,
    draw_updates,
    next_laws,
    pick,
    pick_actions,
    shifted_lattice,
)
from fle.models.network import mean_over_draws


class Pool(NamedTuple):
    """Draws of r + discount * y of one row, and the law that each y was drawn from."""

    returns: Float[Array, "pool d"]
    choices: Int[Array, " pool"]
    update: NextLaws


class PooledModel(GradientModel):
    """A model that is costly to sample: each row gets a few draws of its target a stage.

    At each use of a row, draws are picked from that pool and disturbed afresh.
    """

    pool: eqx.AbstractVar[int]
    return_dim: eqx.AbstractVar[int]

    @property
    def prepare_noise_size(self) -> int:
        """One number picks the actions, the rest draw the returns."""
        return 1 + self.noise_size

    @property
    def target_noise_size(self) -> int:
        """One number picks from the pool, one a level of noise, d make the noise."""
        return 2 + self.return_dim

    def prepare(self, previous: Self, transition: Transition) -> Pool:
        """Draws of r + discount * y with a' ~ policy and y ~ previous(x', a')."""
        update = next_laws(previous, transition)
        noise = jnp.asarray(transition.noise)
        choices = pick_actions(update, shifted_lattice(noise, self.pool))
        return Pool(draw_updates(previous, update, noise, self.pool), choices, update)

    def target(
        self, previous: Self, prepared: Pool, uniforms: Float[Array, " noise"], draws: int
    ) -> Any:
        """Some of the pool, with noise of its own for each."""
        points = shifted_lattice(uniforms, draws)
        places = pick(jnp.arange(1.0, self.pool + 1), points[:, 0])
        laws = jax.tree.map(lambda a: a[prepared.choices[places]], prepared.update.laws)

        def disturb(returns: Array, law: Any, uniforms: Array) -> Any:
            return self.disturbed(previous, prepared.update, returns, law, uniforms)

        return jax.vmap(disturb)(prepared.returns[places], laws, points[:, 1:])

    def loss(self, inputs: Float[Array, " inputs"], target: Any) -> Float[Array, ""]:
        """Denoising loss, averaged over the draws."""
        context = self.condition(inputs)
        return jnp.mean(jax.vmap(lambda case: self.denoising_loss(context, case))(target))

    def batch_loss(self, inputs: Float[Array, "rows inputs"], targets: Any) -> Float[Array, ""]:
        """Denoising loss, averaged over all rows and draws."""
        return mean_over_draws(self.condition, self.denoising_loss, inputs, targets)

    @abstractmethod
    def disturbed(
        self,
        previous: Self,
        update: NextLaws,
        returns: Float[Array, " d"],
        law: Any,
        uniforms: Float[Array, " noise"],
    ) -> Any:
        """One disturbed return, and what is to be recovered from it.

        law: what the next return was drawn from, by the previous model.
        """

    @abstractmethod
    def denoising_loss(self, context: Float[Array, " hidden"], case: Any) -> Float[Array, ""]:
        """How well one disturbed return is recovered."""
