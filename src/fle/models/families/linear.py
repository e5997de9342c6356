"""A Gaussian whose mean is linear in features that the user gives: fitted exactly."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from fle.errors import ModelError, SettingsError
from fle.models.families.gaussian import IndependentNormal, MeanAndVariance
from fle.models.law import Sizes
from fle.models.objectives import ClosedForm, Transition
from fle.models.specs import ModelSpec, Moments, identity_frame
from fle.recipe import Resolved

FloatArray = npt.NDArray[np.float64]
# Least variance, as a share of its mean: a linear function may fall below zero.
LEAST_VARIANCE = 0.01
# A matrix of at most so many numbers is decomposed once for all stages that have it.
KEPT_NUMBERS = 4_000_000
# (observations (n, ...), actions (n, ...)) -> (n, F).
Function = Callable[[Any, Any], Any]


class Features(NamedTuple):
    """A function of observations and actions, asked at inputs of a law.

    function: of batches, in NumPy or in JAX. sizes: of the data, to tell both apart.
    number: F. traceable: whether JAX can compile it; else it is called back.
    """

    function: Function
    sizes: Sizes
    number: int
    traceable: bool

    @classmethod
    def of(cls, function: Function, sizes: Sizes) -> "Features":
        """After a look at what it returns for two rows."""
        blank = cls(function, sizes, 0, False)
        example = blank.matrix(np.full((2, sizes.inputs), 0.5))
        try:
            jax.eval_shape(blank.called, jax.ShapeDtypeStruct((2, sizes.inputs), np.float32))
            traceable = True
        # Whatever NumPy, or another library, says of a tracer.
        except Exception:
            traceable = False
        return cls(function, sizes, example.shape[1], traceable)

    def called(self, inputs: Any) -> Any:
        """The function at inputs (n, inputs), each part as the data has it."""
        sizes = self.sizes
        width = sizes.inputs - sizes.action
        observations, actions = inputs[:, :width], inputs[:, width:]
        if sizes.discrete_observations:
            observations = observations.argmax(axis=1)
        if sizes.discrete_actions:
            actions = actions.argmax(axis=1)
        return self.function(observations, actions)

    def matrix(self, inputs: npt.NDArray) -> FloatArray:
        """(n, F) In double precision, checked."""
        found = np.asarray(self.called(np.asarray(inputs, np.float64)), np.float64)
        if found.ndim != 2 or len(found) != len(inputs) or found.shape[1] == 0:
            raise ModelError(
                f"features: expected a matrix of {len(inputs)} rows, one for each observation and "
                f"action, got shape {found.shape}. Return an array (n, F)."
            )
        if not np.all(np.isfinite(found)):
            raise ModelError("features: expected finite numbers, got NaN or infinity.")
        return found

    def at(self, inputs: Float[Array, " inputs"]) -> Float[Array, " features"]:
        """Of one input, within compiled code."""
        if self.traceable:
            return jnp.asarray(self.called(inputs[None])[0], jnp.float32)

        def back(batch: npt.NDArray) -> npt.NDArray:
            flat = np.asarray(batch).reshape(-1, batch.shape[-1])
            return self.matrix(flat).astype(np.float32).reshape(*batch.shape[:-1], self.number)

        shape = jax.ShapeDtypeStruct((self.number,), np.float32)
        return jax.pure_callback(back, shape, inputs, vmap_method="broadcast_all")


class LinearLaw(IndependentNormal):
    """p(z | x, a) = N(z; theta . phi(x, a) + c, v(x, a)), coordinates independent.

    coefficients: (F + 1, d), the intercept last. spreads: those of v. least: (d,) of v.
    """

    coefficients: Float[Array, "features d"]
    spreads: Float[Array, "features d"]
    least: Float[Array, " d"]
    features: Features = eqx.field(static=True)

    @property
    def noise_size(self) -> int:
        """One number a coordinate."""
        return int(self.least.shape[0])

    def condition(self, inputs: Float[Array, " inputs"]) -> MeanAndVariance:
        """Mean and variance at one input."""
        phi = jnp.append(self.features.at(inputs), 1.0)
        return MeanAndVariance(phi @ self.coefficients, jnp.maximum(phi @ self.spreads, self.least))


class TwoMoments(ClosedForm):
    """Least squares of the expected targets, then of their squared distance from the mean.

    With m, v the previous mean and variance and y = r + g sum_a' p m(x', a'): theta minimises
    sum_i w_i (y_i - theta . phi_i)², and v is fitted to (y - theta . phi)² + g² Var(y'), where
    Var(y') = sum_a' p v + the variance of m over next actions.
    """

    intercept: bool = eqx.field(static=True)
    variance: str = eqx.field(static=True)

    def solve(
        self,
        law: LinearLaw,
        previous: LinearLaw,
        transitions: Transition,
        weights: Float[Array, " rows"],
    ) -> LinearLaw:
        """Both in double precision."""
        inputs, rows = np.asarray(transitions.inputs), len(transitions.reward)
        phi = _with_one(law.features.matrix(inputs))
        if phi.shape[1] > rows:
            raise ModelError(
                f"features: {phi.shape[1]} of them, the intercept included, and {rows:,} rows; "
                "expected more rows than features."
            )
        reward = np.asarray(transitions.reward, float)
        discount = np.asarray(transitions.discount, float)
        after, spread = _next_moments(previous, transitions)
        root = np.sqrt(np.asarray(weights, float))
        targets = reward + discount * after
        kept = np.arange(phi.shape[1] - (0 if self.intercept else 1))
        coefficients = np.zeros((phi.shape[1], reward.shape[1]))
        coefficients[kept] = _least_squares(phi[:, kept], targets, root)
        squares = (targets - phi @ coefficients) ** 2 + discount**2 * spread
        of_what = kept if self.variance == "features" else kept[:0]
        of_what = np.union1d(of_what, [phi.shape[1] - 1])
        spreads = np.zeros_like(coefficients)
        spreads[of_what] = _least_squares(phi[:, of_what], squares, root)
        typical = np.average(squares, axis=0, weights=root**2)
        # Without noise, what float32 would make of the returns themselves.
        rounding = np.maximum(1e-12 * np.mean(targets**2, axis=0), 1e-30)
        least = LEAST_VARIANCE * np.maximum(typical, rounding)
        return LinearLaw(
            jnp.asarray(coefficients, jnp.float32),
            jnp.asarray(spreads, jnp.float32),
            jnp.asarray(least, jnp.float32),
            law.features,
        )


def _with_one(matrix: FloatArray) -> FloatArray:
    return np.hstack([matrix, np.ones((len(matrix), 1))])


class _Matrix:
    """A matrix as a key: hundreds of stages that repeat one update have the same."""

    def __init__(self, values: FloatArray):
        self.values = values
        self._digest = hashlib.blake2b(np.ascontiguousarray(values).data).digest()

    def __hash__(self) -> int:
        return hash(self._digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Matrix) and np.array_equal(self.values, other.values)


@lru_cache(maxsize=1)
def _inverse(matrix: _Matrix) -> FloatArray:
    """That gives the shortest of all solutions, where features are not independent."""
    rounding = max(matrix.values.shape) * np.finfo(float).eps
    return np.asarray(np.linalg.pinv(matrix.values, rcond=rounding), np.float64)


def _least_squares(phi: FloatArray, targets: FloatArray, root: FloatArray) -> FloatArray:
    matrix, weighted = phi * root[:, None], targets * root[:, None]
    if matrix.shape[1] == 1:
        return np.asarray(matrix.T @ weighted / np.sum(matrix**2), np.float64)
    # Rounding is told in units of each feature: one of 1e-9 is not nothing beside one of 1e9.
    units = np.abs(matrix).max(axis=0)
    units[units == 0] = 1.0
    matrix /= units
    if matrix.size > KEPT_NUMBERS:
        found = np.linalg.lstsq(matrix, weighted)[0]
    else:
        found = _inverse(_Matrix(matrix)) @ weighted
    return np.asarray(found, np.float64) / units[:, None]


def _next_moments(previous: LinearLaw, transitions: Transition) -> tuple[FloatArray, FloatArray]:
    """(rows, d) Mean and variance of the next return, over actions and returns."""
    actions = np.asarray(transitions.next_actions, np.float64)
    observations = np.asarray(transitions.next_observation, np.float64)
    rows, candidates, width = actions.shape
    repeated = np.repeat(observations, candidates, axis=0)
    inputs = np.hstack([repeated, actions.reshape(-1, width)])
    phi = _with_one(previous.features.matrix(inputs)).reshape(rows, candidates, -1)
    chances = np.asarray(transitions.probabilities, np.float64)[:, :, None]
    means = phi @ np.asarray(previous.coefficients, np.float64)
    variances = np.maximum(
        phi @ np.asarray(previous.spreads, np.float64), np.asarray(previous.least, np.float64)
    )
    mean = np.sum(chances * means, axis=1)
    spread = np.sum(chances * (variances + (means - mean[:, None]) ** 2), axis=1)
    return mean, spread


@dataclass(frozen=True)
class Linear(ModelSpec):
    """A Gaussian whose mean is linear in your own features, fitted exactly by least squares.

    p(z | x, a) = N(z; theta . phi(x, a) + c, v). Where the mean of the return is in the class, no
    network comes near it on few rows.

    features: (observations (n, ...), actions (n, ...)) -> (n, F), in NumPy or JAX; both as the data
        has them, in its own units.
    intercept: whether there is a constant c.
    variance: "constant", one v for all; or "features", linear in the same features, and at least a
        hundredth of its mean.

    Example:
        >>> def quadratic(x, a):
        ...     z = np.hstack([x, a])
        ...     i, j = np.triu_indices(z.shape[1])
        ...     return z[:, i] * z[:, j]
        >>> fle.evaluate(data, policy, gamma=0.99, model=fle.Linear(quadratic))
    """

    features: Function
    intercept: bool = True
    variance: Literal["constant", "features"] = "constant"

    name: ClassVar[str] = "linear"
    standardised: ClassVar[bool] = False
    any_shape: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.features):
            raise SettingsError(
                "Linear features: expected a function of observations and actions, got "
                f"{self.features!r}."
            )
        if self.variance not in ("constant", "features"):
            raise SettingsError(
                f'Linear variance: expected "constant" or "features", got {self.variance!r}.'
            )

    def build(self, sizes: Sizes, recipe: Resolved, generator: np.random.Generator) -> LinearLaw:
        """The zero function."""
        found = Features.of(self.features, sizes)
        shape = (found.number + 1, sizes.returns)
        return LinearLaw(jnp.zeros(shape), jnp.zeros(shape), jnp.full(sizes.returns, 1e-30), found)

    def objective(self, recipe: Resolved) -> TwoMoments:
        """Least squares, twice."""
        return TwoMoments(bool(self.intercept), self.variance)

    def frame(self, samples: np.ndarray) -> Moments:
        """The units of the data."""
        return identity_frame(samples)
