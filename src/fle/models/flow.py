"""Conditional normalising flows of rational-quadratic splines, on FlowJAX."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError
from fle.models.base import LikelihoodModel, NextLaws, Sizes, Tuning, shifted_lattice
from fle.models.conditionals import Conditionals, TriangularModel
from fle.models.frames import FrameRule, moments_frame
from fle.models.hyperparameters import Hyperparameters
from fle.models.network import Network

if TYPE_CHECKING:
    from flowjax.bijections import AbstractBijection

    from fle.models.splines import Spline

# Splines bend within this many standard deviations; beyond, they are the identity.
INTERVAL = 4.0


class FlowModel(LikelihoodModel):
    """z = T(e; x, a) with e standard normal and T made of monotone splines.

    Targets are blurred by `scale_floor` (in units of the return scale) before their likelihood is
    taken, so that a point mass becomes a narrow peak instead of an infinite density.
    """

    return_dim: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    @property
    def target_noise_size(self) -> int:
        """As for any density, and one number a coordinate for the blur."""
        return super().target_noise_size + self.return_dim

    def target(
        self,
        previous: Self,
        prepared: NextLaws,
        uniforms: Float[Array, " noise"],
        draws: int,
    ) -> Float[Array, "draws d"]:
        """Draws of r + discount * y, blurred."""
        blur, uniforms = jnp.split(uniforms, [self.return_dim])
        points = shifted_lattice(blur, draws)
        returns = super().target(previous, prepared, uniforms, draws)
        return returns + self.scale_floor * ndtri(points)


class Parts(NamedTuple):
    """What turns a standard normal into one coordinate."""

    location: Float[Array, ""]
    scale: Float[Array, ""]
    spline: "Spline"


class AutoregressiveFlowModel(TriangularModel, FlowModel):
    """z_j = location + scale * S(e_j), each a function of (x, a) and z_1 .. z_j-1."""

    conditionals: Conditionals
    knots: int = eqx.field(static=True)

    noise_a_coordinate: ClassVar[int] = 1

    def law(self, outputs: Float[Array, " outputs"]) -> Parts:
        """Location, scale and spline; zeros stand for 0, 1 and the identity."""
        import paramax

        scale = jax.nn.softplus(outputs[1] + np.log(np.expm1(1 - self.scale_floor)))
        spline = _spline_maker(self.knots)[0](outputs[2:])
        return Parts(outputs[0], self.scale_floor + scale, paramax.unwrap(spline))

    def log_prob_of_one(self, law: Parts, value: Float[Array, ""]) -> Float[Array, ""]:
        """Change of variables."""
        normal, log_det = law.spline.inverse_and_log_det((value - law.location) / law.scale)
        return log_det - jnp.log(law.scale) - 0.5 * normal**2 - 0.5 * np.log(2 * np.pi)

    def draw_one(self, law: Parts, uniforms: Float[Array, " 1"]) -> Float[Array, ""]:
        """The image of a standard normal."""
        bent, _ = law.spline.transform_and_log_det(ndtri(uniforms[0]))
        return law.location + law.scale * bent


class CouplingFlowModel(FlowModel):
    """Splines in a chain, each of half of the coordinates given the other half."""

    context: Network
    bijection: "AbstractBijection"

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " context"]:
        """What the splines are told of the input."""
        return jax.nn.silu(self.context(inputs))

    def draw(
        self, law: Float[Array, " context"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """The splines' image of a standard normal."""
        return self._splines().transform(ndtri(uniforms), law)

    def log_prob(
        self, inputs: Float[Array, " inputs"], returns: Float[Array, " d"]
    ) -> Float[Array, ""]:
        """Change of variables."""
        normal, log_det = self._splines().inverse_and_log_det(returns, self.condition(inputs))
        return log_det - 0.5 * jnp.sum(normal**2) - 0.5 * self.return_dim * np.log(2 * np.pi)

    def _splines(self) -> "AbstractBijection":
        import paramax

        return paramax.unwrap(self.bijection)


@dataclass(frozen=True)
class Flow(Hyperparameters):
    """Conditional normalising flow with an exact density.

    kind: "autoregressive" transforms each coordinate given those before it, in one pass a
        coordinate; "coupling" transforms half of the coordinates given the others, several times. A
        scalar return has nothing to couple and is always autoregressive.
    knots: knots of each spline.
    hidden: width of the two-layer networks that give the splines.
    layers: number of transformations in the chain of "coupling".
    context: for "coupling", widths of the network that reads observation and action.
    scale_floor: blur of the targets, as a share of the return scale.
    """

    kind: Literal["coupling", "autoregressive"] = "autoregressive"
    knots: int = 16
    hidden: int = 64
    layers: int = 4
    context: tuple[int, ...] = (64, 32)
    scale_floor: float = 0.01

    name: ClassVar[str] = "flow"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)
    tuning: ClassVar[Tuning] = Tuning(steps=0.75, learning_rate=0.5, batch_size=0.5, draws=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("coupling", "autoregressive"):
            raise SettingsError(f'kind must be "coupling" or "autoregressive", got {self.kind!r}.')

    def build(self, sizes: Sizes, generator: np.random.Generator) -> FlowModel:
        """A flow that starts out near the identity, that is, as a standard normal."""
        try:
            _, parameters = _spline_maker(self.knots)
        except ImportError as error:
            raise ModelError(
                "Flow needs FlowJAX, which is not installed: pip install 'fle[flows]'."
            ) from error
        if self.kind == "autoregressive" or sizes.returns == 1:
            hidden, bias = (self.hidden, self.hidden), np.zeros(2 + parameters)
            conditionals = Conditionals.build(sizes, hidden, bias, generator)
            return AutoregressiveFlowModel(
                sizes.returns, self.scale_floor, conditionals, self.knots
            )
        seed = int(generator.integers(2**32))
        arrays = eqx.filter(_coupling(self, sizes, seed), eqx.is_array)
        bijection = eqx.combine(arrays, _functions(self, sizes))
        context = Network(sizes.inputs, self.context[:-1], np.zeros(self.context[-1]), generator)
        return CouplingFlowModel(sizes.returns, self.scale_floor, context, bijection)


@lru_cache(maxsize=64)
def _spline_maker(knots: int) -> tuple[Any, int]:
    """A function from parameters to splines, where zeros give the identity, and their number."""
    from flowjax.utils import get_ravelled_pytree_constructor

    from fle.models.splines import Spline

    # Asked for first within a function being compiled, its constants would be that function's.
    with jax.ensure_compile_time_eval():
        spline = Spline(knots=knots, interval=INTERVAL)
        return get_ravelled_pytree_constructor(spline, eqx.is_inexact_array)


def _coupling(spec: Flow, sizes: Sizes, seed: int) -> "AbstractBijection":
    from flowjax.distributions import StandardNormal
    from flowjax.flows import coupling_flow

    from fle.models.splines import Spline

    return coupling_flow(
        jax.random.key(seed),
        base_dist=StandardNormal((sizes.returns,)),  # type: ignore[call-arg]
        transformer=Spline(knots=spec.knots, interval=INTERVAL),
        cond_dim=spec.context[-1],
        flow_layers=spec.layers,
        nn_width=spec.hidden,
        nn_depth=2,
        nn_activation=jax.nn.silu,
        invert=False,
    ).bijection


@lru_cache(maxsize=64)
def _functions(spec: Flow, sizes: Sizes) -> Any:
    """The functions within a chain, the same objects for equal flows: compiled code is found again
    only by them.
    """
    return eqx.filter(_coupling(spec, sizes, 0), eqx.is_array, inverse=True)
