"""The distribution of a policy's return: it can be sampled, and answers every risk question."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import DataError, ModelError, SettingsError, nearest
from fle.returns import risk
from fle.returns.intervals import Estimate, Replicates, interval_of
from fle.returns.measures import (
    REGISTER,
    Measure,
    enough_in_tail,
    measure,
    usual_measures,
    warn_about_thin_tail,
)
from fle.screen import Tabular, aligned, html_table

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class ReturnDistribution(Tabular):
    """A distribution over returns in R^d, known through its draws.

    Every statistic is taken on one cached sample of `sample_size` draws made with `seed`, so
    that numbers agree with one another and from call to call.

    Args:
        draw: (generator, n) -> (n, d) independent returns.
        log_density: (n, d) -> (n,), where there is a density.
        names: one name for each of the d coordinates.
        sample_size: draws behind every statistic.
        seed: seed of those draws.
        given_samples: (n, d) to use as that cached sample instead of drawing it.
        weights: (n,) of the given samples, where they do not count alike.
        worth: how many draws the given samples are worth, where their weights do not tell.
        replicates: what other episodes would have made of it, for intervals.

    Example: `fle.ReturnDistribution.from_samples([1.0, 2.0, 4.0]).cvar(0.1)`.
    """

    draw: Callable[[np.random.Generator, int], FloatArray]
    log_density: Callable[[FloatArray], FloatArray] | None = None
    names: tuple[str, ...] = ("return",)
    sample_size: int = 100_000
    seed: int = 0
    given_samples: FloatArray | None = None
    weights: FloatArray | None = None
    worth: float | None = None
    replicates: Replicates | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.names))
        if not self.names or len(set(self.names)) != len(self.names):
            raise SettingsError(f"names: expected one or more, all distinct, got {self.names}")
        if self.sample_size < 1:
            raise SettingsError(f"sample_size: expected at least 1, got {self.sample_size}")
        if self.weights is not None and self.given_samples is None:
            raise SettingsError(
                "weights: expected none for draws, got some; give given_samples too"
            )

    @classmethod
    def from_samples(
        cls,
        samples: ArrayLike,
        names: Sequence[str] | None = None,
        weights: ArrayLike | None = None,
        *,
        worth: float | None = None,
    ) -> "ReturnDistribution":
        """The empirical distribution of samples, (n,) or (n, d): statistics use exactly these.

        Weights (n,) need not sum to one; without them all samples count alike. `worth` says how
        many draws they stand for, where few values stand for many, as a table of chances does.

        Example:
            >>> ReturnDistribution.from_samples([0.0, 4.0, 8.0], weights=[2, 1, 1]).mean()
            3.0
        """
        rows = np.array(samples, dtype=float)
        if rows.ndim == 1:
            rows = rows[:, None]
        if rows.ndim != 2 or rows.size == 0 or not np.all(np.isfinite(rows)):
            raise DataError(
                "samples: expected finite numbers of shape (n,) or (n, d), at least one, got shape "
                f"{np.shape(samples)}"
                + ("" if np.all(np.isfinite(rows)) else " with values that are not finite")
            )
        rows.flags.writeable = False
        dim = rows.shape[1]
        if names is None:
            names = ("return",) if dim == 1 else tuple(f"return_{i}" for i in range(dim))
        if len(names) != dim:
            raise SettingsError(f"names: expected one for each of {dim} coordinates, got {names}")
        masses = chances = None
        if weights is not None:
            masses = risk.checked_weights(weights, len(rows)).copy()
            masses.flags.writeable = False
            chances = masses / masses.sum()
        return cls(
            draw=lambda generator, n: rows[generator.choice(len(rows), size=n, p=chances)],
            names=tuple(names),
            sample_size=len(rows),
            given_samples=rows,
            weights=masses,
            worth=worth,
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

    @property
    def effective_size(self) -> float:
        """How many equally weighted draws say as much as these: (Σ w)² / Σ w², or their worth."""
        if self.worth is not None:
            return self.worth
        return risk.effective_size(self.samples[:, 0], self.weights)

    def sample(self, n: int, seed: int | None = None) -> FloatArray:
        """n fresh returns: (n,) for scalar returns, (n, d) for vectors."""
        rows = self._drawn(np.random.default_rng(seed), n)
        return rows[:, 0] if self.dim == 1 else rows

    def some_draws(self, most: int, seed: int = 0) -> FloatArray:
        """At most this many rows (n, d) that count alike: of `samples`, or drawn by weight.

        A weighted sample gives as many as are asked for: three atoms are not three draws.
        """
        generator = np.random.default_rng(seed)
        if self.weights is not None:
            return self._drawn(generator, most)
        if len(self.samples) <= most:
            return self.samples
        return self.samples[generator.choice(len(self.samples), most, replace=False)]

    def _drawn(self, generator: np.random.Generator, n: int) -> FloatArray:
        rows = np.asarray(self.draw(generator, n), dtype=float)
        if rows.shape != (n, self.dim):
            raise ModelError(
                f"draw: expected shape {(n, self.dim)} for names {self.names}, got {rows.shape}"
            )
        if not np.all(np.isfinite(rows)):
            bad = int(np.sum(~np.isfinite(rows).all(axis=1)))
            raise ModelError(f"{bad} of {n} sampled returns are not finite; the model diverged.")
        return rows

    # Moments, for scalars and vectors.

    def mean(self) -> float | FloatArray:
        """E[Z]: a float, or (d,)."""
        return self._per_coordinate(risk.mean)

    def variance(self) -> float | FloatArray:
        """E[(Z - E[Z])²]: a float, or (d,) for each coordinate."""
        return self._per_coordinate(risk.variance)

    def std(self) -> float | FloatArray:
        """Standard deviation: a float, or (d,)."""
        return self._per_coordinate(risk.std)

    def _per_coordinate(self, moment: Callable[..., float]) -> float | FloatArray:
        values = [moment(column, weights=self.weights) for column in self.samples.T]
        return values[0] if self.dim == 1 else np.array(values)

    def correlation(self) -> FloatArray:
        """(d, d) correlations; NaN beside a coordinate that never varies."""
        matrix = np.atleast_2d(np.cov(self.samples, rowvar=False, aweights=self.weights, ddof=0))
        scale = np.sqrt(np.diag(matrix))
        with np.errstate(divide="ignore", invalid="ignore"):
            matrix = matrix / scale[:, None] / scale
        np.fill_diagonal(matrix, 1.0)
        return matrix

    # Risk of a scalar return.

    def measure(self, asked: str | Measure) -> float:
        """Any measure of the register, by the text that names it; it warns where draws are few.

        Example:
            >>> ReturnDistribution.from_samples(range(1, 1001)).measure("cvar:0.1")
            50.5
        """
        found = measure(asked)
        values = self._scalar_samples("measure")
        warn_about_thin_tail(found.tail(values, self.weights), self.effective_size, stacklevel=2)
        return found.of(values, self.weights)

    def measure_if_supported(self, asked: str | Measure) -> float | None:
        """The same without a warning, or None where almost no draws decide the number."""
        found = measure(asked)
        values = self._scalar_samples("measure")
        enough = enough_in_tail(found.tail(values, self.weights), self.effective_size)
        return found.of(values, self.weights) if enough else None

    def interval(self, asked: str | Measure, level: float | None = None) -> Estimate:
        """Any measure with its interval, where the evaluation was asked for intervals.

        Example: `evaluation.at(observation, action).interval("below:3").ends`.
        """
        return interval_of(self, asked, level)

    def median(self) -> float:
        """inf {z : P(Z <= z) >= 1/2}."""
        return float(self._asked("median"))

    def quantile(self, level: ArrayLike) -> float | FloatArray:
        """inf {z : P(Z <= z) >= level}, for one level or an array of them."""
        return self._asked("quantile", level)

    def value_at_risk(self, level: ArrayLike) -> float | FloatArray:
        """The level-quantile of the return: the lower tail begins here."""
        return self._asked("value_at_risk", level)

    def cvar(self, level: ArrayLike) -> float | FloatArray:
        """Mean of the worst `level` share: max over b of b - E[(b - Z)+] / level."""
        return self._asked("cvar", level)

    def upper_cvar(self, level: ArrayLike) -> float | FloatArray:
        """Mean of the best `level` share: min over b of b + E[(Z - b)+] / level."""
        return self._asked("upper_cvar", level)

    def lower_partial_moment(self, threshold: float, order: float = 1) -> float:
        """E[((threshold - Z)+)^order]."""
        return float(self._asked("lower_partial_moment", threshold, order))

    def entropic_risk(self, aversion: float) -> float:
        """-log(E[exp(-aversion Z)]) / aversion: the sure return that is as good."""
        return float(self._asked("entropic", aversion))

    def expectile(self, level: float) -> float:
        """The e with level E[(Z - e)+] = (1 - level) E[(e - Z)+]."""
        return float(self._asked("expectile", level))

    def cdf(self, z: ArrayLike) -> float | FloatArray:
        """P(Z <= z), for one threshold or an array of them."""
        values = self._scalar_samples("cdf")
        return _as_float(risk.distribution_function(values, z, self.weights))

    def _asked(self, name: str, *parameters: ArrayLike) -> float | FloatArray:
        values = self._scalar_samples(name)
        family = REGISTER[name]
        answer = family.compute(values, *parameters, weights=self.weights)
        share = family.tail(values, self.weights, *parameters)
        warn_about_thin_tail(share, self.effective_size, stacklevel=3)
        return _as_float(answer)

    def _scalar_samples(self, question: str) -> FloatArray:
        if self.dim > 1:
            raise ModelError(
                f"{question} needs a scalar return, but this one has {self.dim} coordinates "
                f"{self.names}. Ask .marginal({self.names[0]!r}).{question}(...) for one of them, "
                f"or .scalarize(weights).{question}(...) for a weighted sum."
            )
        return self.samples[:, 0]

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
            raise SettingsError("probability: expected below=, above= or both, got neither")
        upper = self._bound("below", below, np.inf)
        lower = self._bound("above", above, -np.inf)
        inside = (self.samples < upper) & (self.samples > lower)
        return float(np.average(inside.all(axis=1), weights=self.weights))

    def _bound(
        self, side: str, bound: float | Sequence[float | None] | None, absent: float
    ) -> FloatArray:
        if bound is None:
            return np.full(self.dim, absent)
        entries = list(bound) if np.ndim(bound) else [bound]  # type: ignore[arg-type]
        values = np.array([absent if entry is None else entry for entry in entries], dtype=float)
        if values.shape != (self.dim,) or np.any(np.isnan(values)):
            raise SettingsError(
                f"{side}: expected one number (or None) for each of {self.names}, got {bound}"
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
            raise ModelError(f"z: expected shape {expected}, got {np.shape(z)}")
        values = np.asarray(self.log_density(rows), dtype=float)
        return float(values[0]) if one_point else values

    # From vectors to scalars.

    def marginal(self, coordinate: int | str) -> "ReturnDistribution":
        """The distribution of one coordinate, by position or name."""
        if isinstance(coordinate, str):
            if coordinate not in self.names:
                raise SettingsError(
                    f"coordinate: expected one of {self.names}, got {coordinate!r}"
                    + nearest(coordinate, self.names)
                )
            index = self.names.index(coordinate)
        elif -self.dim <= coordinate < self.dim:
            index = coordinate % self.dim
        else:
            raise SettingsError(
                f"coordinate: expected a position below {self.dim} in {self.names}, "
                f"got {coordinate}"
            )
        if self.dim == 1:
            return self
        return self._projected(np.eye(self.dim)[:, index], self.names[index])

    def scalarize(self, weights: ArrayLike) -> "ReturnDistribution":
        """The distribution of the weighted sum of coordinates, weights (d,)."""
        direction = np.asarray(weights, dtype=float)
        if direction.shape != (self.dim,) or not np.all(np.isfinite(direction)):
            raise SettingsError(
                f"weights: expected {self.dim} finite numbers, for {self.names}, got {direction}"
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
            weights=self.weights,
            worth=self.worth,
            replicates=None
            if self.replicates is None
            else self.replicates.mapped(lambda law: law._projected(direction, name)),
        )

    def summary(self, measures: Sequence[str | Measure] = ()) -> str:
        """A text table: the usual measures and those asked for, then correlations of vectors."""
        columns = [self.marginal(index) for index in range(self.dim)]
        asked = [*usual_measures(), *(measure(one) for one in measures)]
        rows = [(one.label, [column.measure(one) for column in columns]) for one in asked]
        if self.dim > 1:
            labels = (f"correlation with {name}" for name in self.names)
            rows += zip(labels, self.correlation().tolist(), strict=True)
        first = max(len(label) for label, _ in rows)
        width = max(12, *(len(name) for name in self.names))
        lines = [" " * first + "".join(f"  {name:>{width}}" for name in self.names)]
        for label, values in rows:
            lines.append(f"{label:<{first}}" + "".join(f"  {v:>{width}.5g}" for v in values))
        return "\n".join(lines)

    def columns(self) -> dict[str, list[Any]]:
        """The usual measures of each return, one a row, with intervals where there are any.

        A measure of a tail with too few draws has no value.
        """
        table: dict[str, list[Any]] = {"return": [], "measure": [], "value": []}
        if self.replicates is not None:
            table |= {"low": [], "high": []}
        for place, name in enumerate(self.names):
            law = self.marginal(place)
            for one in usual_measures():
                value = law.measure_if_supported(one)
                row: dict[str, Any] = {"return": name, "measure": one.text, "value": value}
                if self.replicates is not None:
                    low, high = (None, None) if value is None else law.interval(one).ends
                    row |= {"low": low, "high": high}
                for column, entry in row.items():
                    table[column].append(entry)
        return table

    def plot(self, kind: str = "density") -> Any:
        """An Altair chart: "density", "cdf", "quantile", or "joint" for two returns or more.

        Example: `result.returns.plot("cdf")`.
        """
        from fle.report.plots import plot_returns

        return plot_returns(self, kind)

    def _shown(self, nothing: str) -> list[list[str]]:
        """The usual measures, a label and a text a return each; intervals where there are any."""
        table = self.columns()
        ends = zip(table["low"], table["high"], strict=True) if "low" in table else None
        texts = [nothing if value is None else f"{value:.5g}" for value in table["value"]]
        if ends is not None:
            texts = [
                text if low is None else f"{text} ({low:.4g} to {high:.4g})"
                for text, (low, high) in zip(texts, ends, strict=True)
            ]
        shown = usual_measures()
        return [[one.label, *texts[i :: len(shown)]] for i, one in enumerate(shown)]

    def _repr_html_(self) -> str:
        rows = self._shown("\N{EN DASH}")
        return html_table("Distribution of the return", ["measure", *self.names], rows)

    def __str__(self) -> str:
        return "\n".join(aligned([["", *self.names], *self._shown("-")]))

    def __repr__(self) -> str:
        density = "no density" if self.log_density is None else "with density"
        return f"ReturnDistribution(names={self.names}, sample_size={self.sample_size}, {density})"


def _as_float(answer: float | FloatArray) -> float | FloatArray:
    return float(answer) if np.ndim(answer) == 0 else answer
