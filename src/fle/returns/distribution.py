"""The law of a policy's return: can always be sampled, and answers every risk question."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import DataError, FLEWarning, ModelError, SettingsError
from fle.returns import risk

FloatArray = NDArray[np.float64]

# Fewer draws than this in a tail, and a tail statistic is mostly luck.
TAIL_DRAWS = 20


@dataclass(frozen=True, eq=False, repr=False)
class ReturnDistribution:
    """A distribution over returns in R^d, known through its draws.

    Every statistic is taken on one cached sample of `sample_size` draws made with `seed`, so
    that numbers agree with one another and from call to call.

    Args:
        draw: (generator, n) -> (n, d) independent returns.
        log_density: (n, d) -> (n,), where the law has a density.
        names: one name for each of the d coordinates.
        sample_size: draws behind every statistic.
        seed: seed of those draws.
        given_samples: (n, d) to use as that cached sample instead of drawing it.
    """

    draw: Callable[[np.random.Generator, int], FloatArray]
    log_density: Callable[[FloatArray], FloatArray] | None = None
    names: tuple[str, ...] = ("return",)
    sample_size: int = 100_000
    seed: int = 0
    given_samples: FloatArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if not self.names or len(set(self.names)) != len(self.names):
            raise SettingsError(f"names must be distinct and at least one; {self.names} came.")
        if self.sample_size < 1:
            raise SettingsError(f"sample_size must be at least 1; {self.sample_size} came.")

    @classmethod
    def from_samples(
        cls, samples: ArrayLike, names: Sequence[str] | None = None
    ) -> "ReturnDistribution":
        """The empirical law of samples, (n,) or (n, d): statistics use exactly these."""
        rows = np.array(samples, dtype=float)
        if rows.ndim == 1:
            rows = rows[:, None]
        if rows.ndim != 2 or rows.size == 0 or not np.all(np.isfinite(rows)):
            raise DataError(
                "Expected finite samples of shape (n,) or (n, d), at least one; "
                f"shape {np.shape(samples)} came"
                + ("." if np.all(np.isfinite(rows)) else ", with values that are not finite.")
            )
        rows.flags.writeable = False
        dim = rows.shape[1]
        if names is None:
            names = ("return",) if dim == 1 else tuple(f"return_{i}" for i in range(dim))
        if len(names) != dim:
            raise SettingsError(f"{dim} names are needed for {dim} coordinates; {names} came.")
        return cls(
            draw=lambda generator, n: rows[generator.integers(len(rows), size=n)],
            names=tuple(names),
            sample_size=len(rows),
            given_samples=rows,
        )

    @property
    def dim(self) -> int:
        """Number of coordinates of the return."""
        return len(self.names)

    @cached_property
    def samples(self) -> FloatArray:
        """The (sample_size, d) draws behind every statistic."""
        if self.given_samples is not None:
            return self.given_samples
        return self._drawn(np.random.default_rng(self.seed), self.sample_size)

    def sample(self, n: int, seed: int | None = None) -> FloatArray:
        """n fresh returns: (n,) for scalar returns, (n, d) for vectors."""
        rows = self._drawn(np.random.default_rng(seed), n)
        return rows[:, 0] if self.dim == 1 else rows

    def _drawn(self, generator: np.random.Generator, n: int) -> FloatArray:
        rows = np.asarray(self.draw(generator, n), dtype=float)
        if rows.shape != (n, self.dim):
            raise ModelError(
                f"draw must return shape {(n, self.dim)} for names {self.names}; {rows.shape} came."
            )
        if not np.all(np.isfinite(rows)):
            bad = int(np.sum(~np.isfinite(rows).all(axis=1)))
            raise ModelError(f"{bad} of {n} sampled returns are not finite; the model diverged.")
        return rows

    # Moments, for scalars and vectors.

    def mean(self) -> float | FloatArray:
        """E[Z]: a float, or (d,)."""
        return self._per_coordinate(self.samples.mean(axis=0))

    def variance(self) -> float | FloatArray:
        """Var[Z]: a float, or (d,) for each coordinate."""
        return self._per_coordinate(self.samples.var(axis=0))

    def std(self) -> float | FloatArray:
        """Standard deviation: a float, or (d,)."""
        return self._per_coordinate(self.samples.std(axis=0))

    def _per_coordinate(self, values: FloatArray) -> float | FloatArray:
        return float(values[0]) if self.dim == 1 else values

    def correlation(self) -> FloatArray:
        """(d, d) correlations; NaN beside a coordinate that never varies."""
        with np.errstate(divide="ignore", invalid="ignore"):
            matrix = np.atleast_2d(np.corrcoef(self.samples, rowvar=False))
        np.fill_diagonal(matrix, 1.0)
        return matrix

    # Risk of a scalar return.

    def quantile(self, level: ArrayLike) -> float | FloatArray:
        """inf {z : P(Z <= z) >= level}, for one level or an array of them."""
        values = self._scalar_samples("quantile")
        levels = risk.checked_level(level)
        self._warn_about_thin_tail(float(np.minimum(levels, 1 - levels).min(initial=0.5)))
        answer = risk.quantile(values, levels)
        return float(answer) if answer.ndim == 0 else answer

    def value_at_risk(self, level: float) -> float:
        """The level-quantile of the return: the lower tail begins here."""
        return float(self.quantile(float(level)))

    def cvar(self, level: float) -> float:
        """Mean of the worst `level` share of returns, max over b of b - E[(b - Z)+] / level."""
        values = self._scalar_samples("cvar")
        self._warn_about_thin_tail(float(risk.checked_level(level)))
        return risk.cvar(values, level)

    def cdf(self, z: ArrayLike) -> float | FloatArray:
        """P(Z <= z), for one threshold or an array of them."""
        ordered = np.sort(self._scalar_samples("cdf"))
        answer = np.searchsorted(ordered, np.asarray(z, dtype=float), side="right") / ordered.size
        return float(answer) if np.ndim(answer) == 0 else answer

    def lower_partial_moment(self, threshold: float, order: float = 1) -> float:
        """E[(threshold - Z)+ ^ order]."""
        return risk.lower_partial_moment(
            self._scalar_samples("lower_partial_moment"), threshold, order
        )

    def _scalar_samples(self, question: str) -> FloatArray:
        if self.dim > 1:
            raise ModelError(
                f"{question} needs a scalar return, but this one has {self.dim} coordinates "
                f"{self.names}. Ask .marginal({self.names[0]!r}).{question}(...) for one of them, "
                f"or .scalarize(weights).{question}(...) for a weighted sum."
            )
        return self.samples[:, 0]

    def _warn_about_thin_tail(self, share: float) -> None:
        draws = share * len(self.samples)
        # Rounding: 0.0002 * 100_000 is a hair below 20.
        if draws < TAIL_DRAWS * (1 - 1e-9):
            warnings.warn(
                f"Only about {draws:.3g} of {len(self.samples)} draws lie in a tail of {share:g}; "
                f"at least {TAIL_DRAWS} are wanted. Use a larger sample_size or level.",
                FLEWarning,
                stacklevel=3,
            )

    # Probabilities and density.

    def probability(
        self,
        below: float | Sequence[float | None] | None = None,
        above: float | Sequence[float | None] | None = None,
    ) -> float:
        """P(above < Z < below), strict on both sides.

        For vectors, a bound is a sequence of d numbers (None: no bound on that coordinate) and
        the answer is the joint probability.
        """
        if below is None and above is None:
            raise SettingsError("probability needs below=, above= or both; neither came.")
        upper = self._bound("below", below, np.inf)
        lower = self._bound("above", above, -np.inf)
        inside = (self.samples < upper) & (self.samples > lower)
        return float(inside.all(axis=1).mean())

    def _bound(
        self, side: str, bound: float | Sequence[float | None] | None, absent: float
    ) -> FloatArray:
        if bound is None:
            return np.full(self.dim, absent)
        entries = list(bound) if np.ndim(bound) else [bound]  # type: ignore[arg-type]
        values = np.array([absent if entry is None else entry for entry in entries], dtype=float)
        if values.shape != (self.dim,) or np.any(np.isnan(values)):
            raise SettingsError(
                f"{side} must give one number (or None) for each of {self.names}; {bound} came."
            )
        return values

    def log_prob(self, z: ArrayLike) -> float | FloatArray:
        """Log density at z.

        Scalar returns: a number gives a float, (n,) or (n, 1) gives (n,). Vectors: (d,) gives a
        float, (n, d) gives (n,).
        """
        if self.log_density is None:
            raise ModelError(
                "This return distribution has samples but no density. Use sample, cdf or "
                'probability, or evaluate with a density model such as model="gmm".'
            )
        points = np.asarray(z, dtype=float)
        one_point = points.ndim == (0 if self.dim == 1 else 1)
        if self.dim == 1 and points.ndim < 2:
            points = points.reshape(-1, 1)
        rows = np.atleast_2d(points)
        if rows.ndim != 2 or rows.shape[1] != self.dim:
            expected = (
                "(), (n,) or (n, 1)" if self.dim == 1 else f"({self.dim},) or (n, {self.dim})"
            )
            raise ModelError(f"Expected z of shape {expected}; {np.shape(z)} came.")
        values = np.asarray(self.log_density(rows), dtype=float)
        return float(values[0]) if one_point else values

    # From vectors to scalars.

    def marginal(self, coordinate: int | str) -> "ReturnDistribution":
        """The law of one coordinate, by position or name."""
        if isinstance(coordinate, str):
            if coordinate not in self.names:
                raise SettingsError(f"No coordinate {coordinate!r}; there are {self.names}.")
            index = self.names.index(coordinate)
        elif -self.dim <= coordinate < self.dim:
            index = coordinate % self.dim
        else:
            raise SettingsError(f"No coordinate {coordinate}; there are {self.dim}: {self.names}.")
        if self.dim == 1:
            return self
        return self._projected(np.eye(self.dim)[:, index], self.names[index])

    def scalarize(self, weights: ArrayLike) -> "ReturnDistribution":
        """The law of the weighted sum of coordinates, weights (d,)."""
        direction = np.asarray(weights, dtype=float)
        if direction.shape != (self.dim,) or not np.all(np.isfinite(direction)):
            raise SettingsError(
                f"Expected {self.dim} finite weights, for {self.names}; {direction} came."
            )
        terms = zip(direction, self.names, strict=True)
        return self._projected(direction, " + ".join(f"{w:g}*{name}" for w, name in terms))

    def _projected(self, direction: FloatArray, name: str) -> "ReturnDistribution":
        return ReturnDistribution(
            draw=lambda generator, n: (self._drawn(generator, n) @ direction)[:, None],
            names=(name,),
            sample_size=self.sample_size,
            seed=self.seed,
            # The same draws: marginals then agree with joint statistics, and cost nothing.
            given_samples=(self.samples @ direction)[:, None],
        )

    def summary(self, levels: Sequence[float] = (0.01, 0.05, 0.1)) -> str:
        """A short text table: moments, quantiles, CVaR at the levels, correlations of vectors."""
        from fle.returns.summary import summary_table

        return summary_table(self, levels)

    def __repr__(self) -> str:
        density = "no density" if self.log_density is None else "with density"
        return f"ReturnDistribution(names={self.names}, sample_size={self.sample_size}, {density})"
