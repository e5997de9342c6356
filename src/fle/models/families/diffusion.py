"""Conditional diffusion: a denoiser, a few-step sampler, and a density by the flow of its ODE."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError, install
from fle.models.law import Density, Law, Sizes
from fle.models.network import Network, fourier_features
from fle.models.objectives import Denoising, NextLaws
from fle.models.specs import ModelSpec
from fle.recipe import Resolved

# Noise levels in training are log-normal, as in Karras, Aittala, Aila, Laine (2022).
LOG_LEVEL_MEAN, LOG_LEVEL_STD = -1.0, 1.4
LOWEST, HIGHEST = 0.01, 10.0
# Returns of unit scale, disturbed at the highest level, have this standard deviation.
START = (1 + HIGHEST**2) ** 0.5
SPACING = 7.0
# Where the update is nearly the same in all coordinates and shrinks returns little, the previous
# denoiser serves as the target.
UNEVEN, LEAST_DISCOUNT = 0.05, 0.5
POSITION_FREQUENCIES = (1.0, 2.0, 4.0)
LEVEL_FREQUENCIES = (0.5, 1.0, 2.0)


class Denoiser(Law):
    """A network that is told of a disturbed return in its first layer, beside the input."""

    network: eqx.AbstractVar[Network]
    position: eqx.AbstractVar[Float[Array, "features hidden"]]
    return_dim: eqx.AbstractVar[int]

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " hidden"]:
        """What the first layer makes of the input."""
        return self.network.project(inputs)

    def outputs(
        self, context: Float[Array, " hidden"], features: Float[Array, " features"]
    ) -> Float[Array, " d"]:
        """Of the network, told of features of a disturbed return and its level of noise."""
        return self.network.finish(context + features @ self.position)

    @abstractmethod
    def disturbed(
        self,
        previous: Any,
        update: NextLaws,
        returns: Float[Array, " d"],
        context: Any,
        uniforms: Float[Array, " noise"],
    ) -> Any:
        """One disturbed return, and what is to be recovered from it.

        context: where the next return was drawn, as `previous.condition` gave it.
        """

    @abstractmethod
    def denoising_loss(self, context: Float[Array, " hidden"], case: Any) -> Float[Array, ""]:
        """How well one disturbed return is recovered."""


def first_position(
    features: int, hidden: int, generator: np.random.Generator
) -> Float[Array, "features hidden"]:
    """Weights by which features of a disturbed return enter the first layer."""
    position = generator.standard_normal((features, hidden)) * np.sqrt(2 / features)
    return jnp.asarray(position, jnp.float32)


class Disturbed(NamedTuple):
    """A return with noise, scaled to unit size, the level of the noise, and the wanted output."""

    scaled: Float[Array, " d"]
    log_level: Float[Array, ""]
    wanted: Float[Array, " d"]


class DiffusionLaw(Denoiser, Density):
    """A denoiser D(z; level) of z + level * noise, given (x, a).

    Returns follow dz / d log level = z - D(z; level) from broad noise down to none. The denoiser
    is preconditioned as by Karras et al. (2022), for returns of unit scale.
    """

    network: Network
    position: Float[Array, "features hidden"]
    return_dim: int = eqx.field(static=True)
    sampling_steps: int = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    def denoise(
        self,
        context: Float[Array, " hidden"],
        returns: Float[Array, " d"],
        level: Float[Array, ""],
    ) -> Float[Array, " d"]:
        """The expected return behind a disturbed one."""
        total = jnp.sqrt(1 + level**2)
        outputs = self._raw(context, returns / total, jnp.log(level))
        return returns / total**2 + level / total * outputs

    def disturbed(
        self,
        previous: Self,
        update: NextLaws,
        returns: Float[Array, " d"],
        context: Float[Array, " hidden"],
        uniforms: Float[Array, " noise"],
    ) -> Disturbed:
        """The return with noise, and what the previous model expects behind it.

        The loss asks for the expected return behind a disturbed one. The drawn return has that
        mean, but so has what the previous model says of it, given the same next state and action,
        and that is not random at all.
        """
        normal = ndtri(uniforms)
        log_level = LOG_LEVEL_MEAN + LOG_LEVEL_STD * normal[0]
        level = jnp.exp(log_level)
        total = jnp.sqrt(1 + level**2)
        disturbed = returns + level * normal[1:]
        # The previous model knows noise that is equal in all coordinates.
        mean = jnp.mean(update.discount)
        known = jnp.all(jnp.abs(update.discount - mean) <= UNEVEN * mean) & (mean >= LEAST_DISCOUNT)
        discount = jnp.where(known, update.discount, 1.0)
        expected = previous.denoise(
            context, (disturbed - update.reward) / discount, level / jnp.mean(discount)
        )
        clean = jnp.where(known, update.reward + discount * expected, returns)
        wanted = (clean - disturbed / total**2) * total / level
        return Disturbed(disturbed / total, log_level, wanted)

    def denoising_loss(self, context: Float[Array, " hidden"], case: Disturbed) -> Float[Array, ""]:
        """Squared error of the network's own part, which has unit scale at every level."""
        return jnp.sum((self._raw(context, case.scaled, case.log_level) - case.wanted) ** 2)

    def draw(
        self, conditioned: Float[Array, " hidden"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """Down a fixed ladder of levels, by the multistep method of Lu et al. (2022).

        Between two levels the flow is exact for a constant denoised return; the last two are
        continued in a line to the middle of the step.
        """
        levels = jnp.asarray(ladder(self.sampling_steps), jnp.float32)
        shrinkage = levels[1:] / levels[:-1]
        sizes = -jnp.log(shrinkage)
        ahead = jnp.concatenate([jnp.zeros(1), 0.5 * sizes[1:] / sizes[:-1]])

        def step(state: tuple[Array, Array], rung: tuple) -> tuple[tuple[Array, Array], None]:
            returns, before = state
            level, shrink, ahead = rung
            denoised = self.denoise(conditioned, returns, level)
            midway = denoised + ahead * (denoised - before)
            return (shrink * returns + (1 - shrink) * midway, denoised), None

        start = self._top(conditioned) + START * ndtri(uniforms)
        rungs = (levels[:-1], shrinkage, ahead)
        (returns, _), _ = jax.lax.scan(step, (start, jnp.zeros_like(start)), rungs)
        return self.denoise(conditioned, returns, levels[-1])

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Log density: the divergence along the flow, integrated by Diffrax, and the start's."""
        diffrax = _diffrax()
        context = self.condition(inputs)

        def velocity(z: Float[Array, " d"], log_level: Float[Array, ""]) -> Float[Array, " d"]:
            return z - self.denoise(context, z, jnp.exp(log_level))

        def field(log_level: Float[Array, ""], state: tuple, _: None) -> tuple:
            z, _ = state
            jacobian = jax.jacfwd(velocity)(z, log_level)
            return velocity(z, log_level), jnp.trace(jacobian)

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            diffrax.Tsit5(),
            np.log(LOWEST),
            np.log(HIGHEST),
            0.05,
            (returns, jnp.zeros(())),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-4),
            max_steps=1000,
        )
        end, divergence = (value[0] for value in solution.ys)
        normal = (end - self._top(context)) / START
        size = self.return_dim * (np.log(START) + 0.5 * np.log(2 * np.pi))
        return divergence - 0.5 * jnp.sum(normal**2) - size

    def _top(self, context: Float[Array, " hidden"]) -> Float[Array, " d"]:
        """Where returns at the highest level are centred: at their mean, as noise hides all else.

        Centred at zero, a mean of one would move a tenth of a standard deviation there, and with
        it the weights of modes.
        """
        return self.denoise(context, jnp.zeros(self.return_dim), jnp.asarray(HIGHEST))

    def _raw(
        self,
        context: Float[Array, " hidden"],
        scaled: Float[Array, " d"],
        log_level: Float[Array, ""],
    ) -> Float[Array, " d"]:
        features = jnp.concatenate(
            [
                fourier_features(scaled, POSITION_FREQUENCIES),
                fourier_features(log_level[None] / 2, LEVEL_FREQUENCIES),
            ]
        )
        return self.outputs(context, features)


def ladder(steps: int) -> np.ndarray:
    """Levels from the highest to the lowest, denser towards the lowest."""
    top, bottom = HIGHEST ** (1 / SPACING), LOWEST ** (1 / SPACING)
    return np.linspace(top, bottom, steps + 1) ** SPACING


@dataclass(frozen=True)
class Diffusion(ModelSpec):
    """Conditional diffusion model; its density is that of its probability flow.

    With D(z; x, a, s) the expected return behind one that was disturbed by noise of scale s, a
    return follows dz/ds = (z - D) / s from noise down to s = 0 (Karras et al. 2022).

    hidden: widths of the hidden layers of the denoiser.
    sampling_steps: steps from noise to a return, one evaluation each.
    pool: target draws a row gets in each stage.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Diffusion(sampling_steps=16))`.
    """

    hidden: tuple[int, ...] = (96, 96, 96)
    sampling_steps: int = 32
    pool: int = 4

    name: ClassVar[str] = "diffusion"
    reads_codes: ClassVar[bool] = True

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> DiffusionLaw:
        """A denoiser of a standard normal."""
        _diffrax()
        d = sizes.returns
        network = Network(sizes.inputs, self.hidden, np.zeros(d), generator, codes=sizes.codes)
        features = d * (1 + 2 * len(POSITION_FREQUENCIES)) + 1 + 2 * len(LEVEL_FREQUENCIES)
        position = first_position(features, self.hidden[0], generator)
        return DiffusionLaw(network, position, d, self.sampling_steps)

    def objective(self, recipe: Resolved) -> Denoising:
        """Recover returns, drawn from a pool, behind noise."""
        return Denoising(self.pool)


def _diffrax():  # type: ignore[no-untyped-def]
    try:
        import diffrax
    except ImportError as error:
        raise ModelError(
            f"Diffusion needs Diffrax, which is not installed: {install('flows')}"
        ) from error
    return diffrax
