"""Conditional normalising flows of rational-quadratic splines, on FlowJAX."""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError, install
from fle.models.law import Density, Law, Sizes
from fle.models.network import Conditionals, Network, TriangularLaw
from fle.models.objectives import Likelihood
from fle.models.specs import ModelSpec
from fle.recipe import Resolved

if TYPE_CHECKING:
    from flowjax.bijections import AbstractBijection

    from fle.models.splines import Spline

# Splines bend within this many standard deviations; beyond, they are the identity.
INTERVAL = 4.0


class Parts(NamedTuple):
    """What turns a standard normal into one coordinate."""

    location: Float[Array, ""]
    scale: Float[Array, ""]
    spline: "Spline"


class AutoregressiveFlowLaw(TriangularLaw):
    """z_j = location + scale * S(e_j), each a function of (x, a) and z_1 .. z_j-1."""

    conditionals: Conditionals
    knots: int = eqx.field(static=True)
    scale_floor: float = eqx.field(static=True)

    noise_a_coordinate: ClassVar[int] = 1

    def factor(self, outputs: Float[Array, " outputs"]) -> Parts:
        """Location, scale and spline; zeros stand for 0, 1 and the identity."""
        import paramax

        scale = jax.nn.softplus(outputs[1] + np.log(np.expm1(1 - self.scale_floor)))
        spline = _spline_maker(self.knots)[0](outputs[2:])
        return Parts(outputs[0], self.scale_floor + scale, paramax.unwrap(spline))

    def log_prob_of_one(self, factor: Parts, value: Float[Array, ""]) -> Float[Array, ""]:
        """Change of variables."""
        normal, log_det = factor.spline.inverse_and_log_det(
            (value - factor.location) / factor.scale
        )
        return log_det - jnp.log(factor.scale) - 0.5 * normal**2 - 0.5 * np.log(2 * np.pi)

    def draw_one(self, factor: Parts, uniforms: Float[Array, " 1"]) -> Float[Array, ""]:
        """The image of a standard normal."""
        bent, _ = factor.spline.transform_and_log_det(ndtri(uniforms[0]))
        return factor.location + factor.scale * bent


class CouplingFlowLaw(Density):
    """Splines in a chain, each of half of the coordinates given the other half."""

    context: Network
    bijection: "AbstractBijection"
    return_dim: int = eqx.field(static=True)

    smooth_draws: ClassVar[bool] = True

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return self.return_dim

    def condition(self, inputs: Float[Array, " inputs"]) -> Float[Array, " context"]:
        """What the splines are told of the input."""
        return jax.nn.silu(self.context(inputs))

    def draw(
        self, conditioned: Float[Array, " context"], uniforms: Float[Array, " noise"]
    ) -> Float[Array, " d"]:
        """The splines' image of a standard normal."""
        return self._splines().transform(ndtri(uniforms), conditioned)

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
class Flow(ModelSpec):
    """Conditional normalising flow with an exact density: z = T(e; x, a), e standard normal.

    T is made of monotone rational-quadratic splines (Durkan et al., 2019). Targets are blurred by
    the recipe's `scale_floor` before their likelihood is taken, so that a point mass becomes a
    narrow peak instead of an infinite density.

    kind: "autoregressive" transforms each coordinate given those before it, in one pass a
        coordinate; "coupling" transforms half of the coordinates given the others, several times. A
        scalar return has nothing to couple and is always autoregressive.
    knots: knots of each spline.
    hidden: width of the two-layer networks that give the splines.
    layers: number of transformations in the chain of "coupling".
    context: for "coupling", widths of the network that reads observation and action.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Flow(knots=16))`.
    """

    kind: Literal["coupling", "autoregressive"] = "autoregressive"
    knots: int = 16
    hidden: int = 64
    layers: int = 4
    context: tuple[int, ...] = (64, 32)

    name: ClassVar[str] = "flow"
    reads_codes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind not in ("coupling", "autoregressive"):
            raise SettingsError(
                f'Flow kind: expected "coupling" or "autoregressive", got {self.kind!r}.'
            )

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> Law:
        """A flow that starts out near the identity, that is, as a standard normal."""
        try:
            _, parameters = _spline_maker(self.knots)
        except ImportError as error:
            raise ModelError(
                f"Flow needs FlowJAX, which is not installed: {install('flows')}"
            ) from error
        if self.kind == "autoregressive" or sizes.returns == 1:
            hidden, bias = (self.hidden, self.hidden), np.zeros(2 + parameters)
            conditionals = Conditionals.build(sizes, hidden, bias, generator)
            return AutoregressiveFlowLaw(conditionals, self.knots, recipe.scale_floor)
        seed = int(generator.integers(2**32))
        arrays = eqx.filter(_coupling(self, sizes, seed), eqx.is_array)
        bijection = eqx.combine(arrays, _functions(self, sizes))
        context = Network(
            sizes.inputs,
            self.context[:-1],
            np.zeros(self.context[-1]),
            generator,
            codes=sizes.codes,
        )
        return CouplingFlowLaw(context, bijection, sizes.returns)

    def objective(self, recipe: Resolved) -> Likelihood:
        """Maximum likelihood of blurred draws."""
        return Likelihood(blur=recipe.scale_floor)


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
