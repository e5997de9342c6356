"""A Gaussian whose mean and variance are polynomials of the inputs: fitted exactly."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from fle.errors import SettingsError
from fle.models.families.linear import FloatArray, LinearLaw, TwoMoments, Variance
from fle.models.law import Sizes
from fle.models.specs import ModelSpec, Moments, identity_frame
from fle.recipe import Resolved


@dataclass(frozen=True)
class Powers:
    """The coordinates of an input and, with degree 2, all products of two of them."""

    inputs: int
    degree: Literal[1, 2]

    @property
    def number(self) -> int:
        """F."""
        return self.inputs + (self.inputs * (self.inputs + 1) // 2 if self.degree == 2 else 0)

    @property
    def pairs(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Which coordinates are multiplied."""
        first, second = np.triu_indices(self.inputs if self.degree == 2 else 0)
        return first, second

    def matrix(self, inputs: npt.NDArray) -> FloatArray:
        """(n, F) In double precision."""
        values = np.asarray(inputs, np.float64)
        first, second = self.pairs
        return np.hstack([values, values[:, first] * values[:, second]])

    def at(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        """Of one input, within compiled code."""
        first, second = self.pairs
        return jnp.concatenate([inputs, inputs[first] * inputs[second]])


@dataclass(frozen=True)
class Polynomial(ModelSpec):
    """A Gaussian whose mean is linear or quadratic in the inputs, fitted exactly by least squares.

    p(z | x, a) = N(z; theta . phi(x, a) + c, v(x, a)), phi the standardised coordinates of x and a,
    and with degree 2 their products. Costs that are quadratic, with linear dynamics and a linear
    policy, have such a mean; a note of "auto" says where the log has nothing against it.

    degree: 1 or 2.
    variance: "constant", one v for all; or "features", of the same degree, and at least a hundredth
        of its mean.

    Example: `fle.evaluate(data, policy, gamma=0.99, model=fle.Polynomial(degree=2))`.
    """

    degree: Literal[1, 2] = 2
    variance: Variance = "constant"

    name: ClassVar[str] = "polynomial"
    any_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.degree not in (1, 2) or isinstance(self.degree, bool):
            raise SettingsError(f"Polynomial degree must be 1 or 2, got {self.degree!r}.")
        if self.variance not in ("constant", "features"):
            raise SettingsError(
                f'Polynomial variance must be "constant" or "features", got {self.variance!r}.'
            )

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> LinearLaw:
        """The zero function."""
        return LinearLaw.zero(Powers(sizes.inputs, self.degree), sizes.returns)

    def objective(self, recipe: Resolved) -> TwoMoments:
        """Least squares, twice."""
        return TwoMoments(True, self.variance)

    def frame(self, samples: np.ndarray) -> Moments:
        """The units of the rewards."""
        return identity_frame(samples)
