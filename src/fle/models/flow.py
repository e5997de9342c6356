"""Conditional normalising flows of rational-quadratic splines, on FlowJAX."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError
from fle.models.base import (
    FrameRule,
    LikelihoodModel,
    NextLaws,
    Sizes,
    Tuning,
    moments_frame,
    shifted_lattice,
)
from fle.models.hyperparameters import Hyperparameters
from fle.models.network import Network

if TYPE_CHECKING:
    from flowjax.bijections import AbstractBijection

# Splines bend within this many standard deviations; beyond, they are the identity.
INTERVAL = 4.0


class FlowModel(LikelihoodModel):
    """z = T(e; context(x, a)) with e standard normal and T a chain of monotone splines.

    Targets are blurred by `scale_floor` (in units of the return scale) before their likelihood is
    taken, so that a point mass becomes a narrow peak instead of an infinite density.
    """

    context: Network
    bijection: "AbstractBijection"
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

    def _splines(self) -> "AbstractBijection":
        import paramax

        return paramax.unwrap(self.bijection)


@dataclass(frozen=True)
class Flow(Hyperparameters):
    """Conditional normalising flow with an exact density.

    kind: "coupling" transforms half of the coordinates given the others, which makes drawing and
        density equally fast; "autoregressive" transforms each given those before it. A scalar
        return has nothing to couple and is always autoregressive.
    layers: number of transformations in the chain.
    knots: knots of each spline.
    hidden: width of the two-layer networks that give the splines.
    context: widths of the network that reads observation and action.
    scale_floor: blur of the targets, as a share of the return scale.
    """

    kind: Literal["coupling", "autoregressive"] = "coupling"
    layers: int = 4
    knots: int = 12
    hidden: int = 64
    context: tuple[int, ...] = (64, 32)
    scale_floor: float = 0.01

    name: ClassVar[str] = "flow"
    standardised: ClassVar[bool] = True
    frame: ClassVar[FrameRule] = staticmethod(moments_frame)
    tuning: ClassVar[Tuning] = Tuning(steps=0.75, learning_rate=0.3, batch_size=0.5, draws=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("coupling", "autoregressive"):
            raise SettingsError(f'kind must be "coupling" or "autoregressive", got {self.kind!r}.')

    def build(self, sizes: Sizes, generator: np.random.Generator) -> FlowModel:
        """A flow that starts out near the identity, that is, as a standard normal."""
        seed = int(generator.integers(2**32))
        arrays = eqx.filter(_bijection(self, sizes, seed), eqx.is_array)
        bijection = eqx.combine(arrays, _functions(self, sizes))
        context = Network(sizes.inputs, self.context[:-1], np.zeros(self.context[-1]), generator)
        return FlowModel(context, bijection, sizes.returns, self.scale_floor)


def _bijection(spec: Flow, sizes: Sizes, seed: int) -> "AbstractBijection":
    try:
        from flowjax.distributions import StandardNormal
        from flowjax.flows import coupling_flow, masked_autoregressive_flow

        from fle.models.splines import Spline
    except ImportError as error:
        raise ModelError(
            "Flow needs FlowJAX, which is not installed: pip install 'fle[flows]'."
        ) from error
    coupled = spec.kind == "coupling" and sizes.returns > 1
    make = coupling_flow if coupled else masked_autoregressive_flow
    return make(
        jax.random.key(seed),
        base_dist=StandardNormal((sizes.returns,)),  # type: ignore[call-arg]
        transformer=Spline(knots=spec.knots, interval=INTERVAL),
        cond_dim=spec.context[-1],
        flow_layers=spec.layers if sizes.returns > 1 else 1,
        nn_width=spec.hidden,
        nn_depth=2,
        nn_activation=jax.nn.silu,
        invert=not coupled,
    ).bijection


@lru_cache(maxsize=64)
def _functions(spec: Flow, sizes: Sizes) -> Any:
    """The functions within a flow, the same objects for equal flows: compiled code is found again
    only by them.
    """
    return eqx.filter(_bijection(spec, sizes, 0), eqx.is_array, inverse=True)
