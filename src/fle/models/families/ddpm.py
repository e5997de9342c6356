"""The paper's diffusion: noise prediction and ancestral sampling (Ho, Jain, Abbeel 2020)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError
from fle.models.families.diffusion import Denoiser, first_position
from fle.models.law import Sizes
from fle.models.network import Network
from fle.models.objectives import Denoising, NextLaws
from fle.models.specs import ModelSpec
from fle.recipe import Resolved


class Disturbed(NamedTuple):
    """A return after some steps, how many of all these are, and the noise in it."""

    returns: Float[Array, " d"]
    time: Float[Array, ""]
    noise: Float[Array, " d"]


class DDPMLaw(Denoiser):
    """z_t = √ᾱ_t z + √(1 − ᾱ_t) ε with ᾱ_t = ∏ (1 − β_s): a network predicts ε from z_t and t/T.

    It can be sampled, T evaluations a return, but has no density.
    """

    network: Network
    position: Float[Array, "features hidden"]
    return_dim: int = eqx.field(static=True)
    variances: tuple[float, ...] = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """d numbers for the start, and d for every step but the last, which adds no noise."""
        return len(self.variances) * self.return_dim

    def predict_noise(
        self,
        context: Float[Array, " hidden"],
        disturbed: Float[Array, " d"],
        time: Float[Array, ""],
    ) -> Float[Array, " d"]:
        """The expected noise in a disturbed return; `time` is t/T in (0, 1]."""
        return self.outputs(context, jnp.append(disturbed, time))

    def disturbed(
        self,
        previous: Self,
        update: NextLaws,
        returns: Float[Array, " d"],
        context: Float[Array, " hidden"],
        uniforms: Float[Array, " noise"],
    ) -> Disturbed:
        """The return with the noise of a random step, which is to be recovered."""
        steps = len(self.variances)
        place = jnp.clip(jnp.floor(uniforms[0] * steps), 0, steps - 1).astype(int)
        kept = jnp.asarray(np.cumprod(1 - np.array(self.variances)), jnp.float32)[place]
        noise = ndtri(uniforms[1:])
        disturbed = jnp.sqrt(kept) * returns + jnp.sqrt(1 - kept) * noise
        return Disturbed(disturbed, (place + 1) / steps, noise)

    def denoising_loss(self, context: Float[Array, " hidden"], case: Disturbed) -> Float[Array, ""]:
        """Squared error of the predicted noise."""
        returns, time, noise = case
        return jnp.mean((self.predict_noise(context, returns, time) - noise) ** 2)

    def draw(
        self, conditioned: Float[Array, " hidden"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """From noise, one step at a time, each with noise of its own but the last."""
        steps, beta = len(self.variances), np.array(self.variances)
        shrink = beta / np.sqrt(1 - np.cumprod(1 - beta))
        spread = np.where(np.arange(steps) > 0, np.sqrt(beta), 0.0)
        times = np.arange(1, steps + 1) / steps
        table = np.stack([shrink, 1 / np.sqrt(1 - beta), spread, times], axis=1)[::-1]
        normal = ndtri(uniforms).reshape(steps, self.return_dim)
        fresh = jnp.concatenate([normal[1:], jnp.zeros((1, self.return_dim))])

        def step(returns: Float[Array, " d"], given: tuple[Array, Array]) -> tuple[Array, None]:
            (shrunk, stretched, noise_scale, time), noise = given
            predicted = self.predict_noise(conditioned, returns, time)
            return stretched * (returns - shrunk * predicted) + noise_scale * noise, None

        returns, _ = jax.lax.scan(step, normal[0], (jnp.asarray(table, jnp.float32), fresh))
        return returns


@dataclass(frozen=True)
class DDPM(ModelSpec):
    """The diffusion model of the paper; `Diffusion` is better and far cheaper to sample.

    hidden: widths of the hidden layers of the noise predictor.
    diffusion_steps: steps from a return to noise, and back.
    first_variance, last_variance: of the noise that a step adds, rising linearly.
    pool: target draws a row gets in each stage.
    """

    hidden: tuple[int, ...] = (256, 256)
    diffusion_steps: int = 200
    first_variance: float = 1e-3
    last_variance: float = 0.1
    pool: int = 1

    name: ClassVar[str] = "ddpm"
    reads_codes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hidden:
            raise ModelError(
                f"DDPM hidden: expected at least one layer, got {self.hidden}. Give widths, "
                "such as hidden=(256, 256)."
            )
        if not 0 < self.first_variance <= self.last_variance < 1:
            raise ModelError(
                "DDPM's variances must rise within (0, 1), got first_variance="
                f"{self.first_variance} and last_variance={self.last_variance}."
            )

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> DDPMLaw:
        """A law that predicts no noise."""
        d = sizes.returns
        network = Network(sizes.inputs, self.hidden, np.zeros(d), generator, codes=sizes.codes)
        position = first_position(d + 1, self.hidden[0], generator)
        variances = np.linspace(self.first_variance, self.last_variance, self.diffusion_steps)
        return DDPMLaw(network, position, d, tuple(float(value) for value in variances))

    def objective(self, recipe: Resolved) -> Denoising:
        """Recover the noise in draws of a pool."""
        return Denoising(self.pool)
