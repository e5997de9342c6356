"""What an estimator of the return found: its distribution, and figures with standard errors.

Importance sampling and its doubly robust relatives are sums over episodes of signed atoms. For any
function h of the return they estimate E[h(Z)] by the mean over episodes of

    phi_i = sum of mass * h(value) over the atoms of episode i,

so that one class has the mean, the distribution function, quantiles and CVaR of all of them, each
with its standard error over episodes.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from fle.baselines.logged_episodes import FloatArray, IntArray, StepWeights
from fle.errors import ModelError
from fle.returns import ReturnDistribution
from fle.returns.opinions import Figure
from fle.returns.risk import LEVEL


@dataclass(frozen=True, eq=False)
class Atoms:
    """Values (M, d) with signed masses (M,), each of one of the terms of an estimate.

    Terms 0 to n - 1 count once, one for each of n episodes. Term n + k has the weight of row k. The
    masses of the first kind sum to 1 a term, those of the second to 0, or to 1 where an estimate
    has no terms of the first kind.

    normalise: whether weights are divided by their mean at each step.
    """

    values: FloatArray
    masses: FloatArray
    terms: IntArray
    weights: StepWeights
    normalise: bool

    @property
    def number(self) -> int:
        """How many episodes there are."""
        return len(self.weights.lengths)

    @cached_property
    def factors(self) -> FloatArray:
        """(n + R,) The weight of each term."""
        weights = self.weights.normalised if self.normalise else self.weights.products
        return np.concatenate([np.ones(self.number), weights])

    def by_episode(self, function: FloatArray) -> FloatArray:
        """(n,) With the mean that estimates E[h(Z)], and the spread of its influence.

        function: (M,) h at every atom.
        """
        number, weights = self.number, self.weights
        sums = np.bincount(self.terms, self.masses * function, number + len(weights.products))
        terms: FloatArray = sums * self.factors
        phi: FloatArray = terms[:number] + np.bincount(weights.episodes, terms[number:], number)
        if not self.normalise:
            return phi
        parts = np.bincount(weights.steps, terms[number:], len(weights.means)) / number
        return phi - weights.normalisation(parts)

    def figure(self, function: FloatArray) -> Figure:
        """The estimate of E[h(Z)] with its standard error."""
        phi = self.by_episode(function)
        error = None if len(phi) < 2 else float(phi.std(ddof=1) / np.sqrt(len(phi)))
        return Figure(float(phi.mean()), error)

    @property
    def signed(self) -> bool:
        """Whether some atom has a negative mass."""
        return bool((self.masses < 0).any())

    def steps(self, coordinate: int) -> tuple[FloatArray, FloatArray]:
        """Sorted values, and what the distribution function is said to be from each on."""
        values = self.values[:, coordinate]
        order = np.argsort(values, kind="stable")
        masses = (self.masses * self.factors[self.terms])[order] / self.number
        ordered, total = values[order], np.cumsum(masses)
        last = np.append(ordered[1:] != ordered[:-1], True)
        return ordered[last], total[last]


@dataclass(frozen=True, eq=False)
class Estimate:
    """What one estimator found.

    effective_size: how many episodes, all alike, would say as much.
    remarks: what is to be known about it.
    """

    name: str
    return_names: tuple[str, ...]
    atoms: Atoms
    effective_size: float
    remarks: tuple[str, ...] = ()

    @cached_property
    def returns(self) -> ReturnDistribution:
        """The distribution of the return, as a weighted sample.

        Signed masses are made a distribution: the nearest monotone function (in ∫ (F - G)² dz,
        which keeps the mean), cut to [0, 1]. Mass that is missing lies at the largest value. So its
        mean may differ from `mean`, which is left as it was estimated.
        """
        if not self.atoms.signed and self.atoms.normalise:
            masses = self.atoms.masses * self.atoms.factors[self.atoms.terms]
            return ReturnDistribution.from_samples(
                self.atoms.values, self.return_names, masses, worth=self.effective_size
            )
        if len(self.return_names) > 1:
            raise ModelError(
                f"{self.name} of vector returns has figures of each coordinate, and no joint"
                " distribution: its weights are not all positive, or do not sum to one. Use"
                " weighted_importance_sampling, or evaluate one reward at a time."
            )
        values, level = self.monotone(0)
        masses = np.diff(level, prepend=0.0)
        kept = masses > 0
        return ReturnDistribution.from_samples(
            values[kept], self.return_names, masses[kept], worth=self.effective_size
        )

    def monotone(self, coordinate: int) -> tuple[FloatArray, FloatArray]:
        """Values and the distribution function from each on, monotone, 1 at the last."""
        values, level = self.atoms.steps(coordinate)
        if len(values) > 1:
            widths = np.maximum(np.diff(values), 1e-300)
            level[:-1] = isotonic_regression(level[:-1], weights=widths).x
        level = np.clip(level, 0.0, 1.0)
        level[-1] = 1.0
        return values, level

    def mean(self, coordinate: int = 0) -> Figure:
        """E[Z]."""
        return self.atoms.figure(self.atoms.values[:, coordinate])

    def std(self, coordinate: int = 0) -> Figure:
        """The square root of E[(Z - E Z)²]; zero where the estimate of that is negative."""
        away = self.atoms.values[:, coordinate] - self.mean(coordinate).value
        value, error = self.atoms.figure(away**2)
        found = float(np.sqrt(max(value, 0.0)))
        return Figure(found, None if error is None or found == 0 else error / (2 * found))

    def cdf(self, threshold: float, coordinate: int = 0) -> Figure:
        """P(Z <= threshold)."""
        return self.atoms.figure((self.atoms.values[:, coordinate] <= threshold).astype(float))

    def quantile(self, level: float, coordinate: int = 0) -> Figure:
        """inf {z : P(Z <= z) >= level}; its error is that of the CDF there, over the density."""
        found = self._quantile(level, coordinate)
        error = self.cdf(found, coordinate).standard_error
        if error is None:
            return Figure(found, None)
        # Hall and Sheather (1988): how far apart two quantiles should be that give the density.
        score = norm.ppf(level)
        shape = 1.5 * norm.pdf(score) ** 2 / (2 * score**2 + 1)
        size = max(self.effective_size, 2.0)
        width = min(size ** (-1 / 3) * norm.ppf(0.975) ** (2 / 3) * shape ** (1 / 3), 0.45)
        ends = np.clip([level - width, level + width], 0.5 / size, 1 - 0.5 / size)
        if ends[1] <= ends[0]:
            # So few draws that none lies beyond: nothing tells the density there.
            return Figure(found, None)
        apart = self._quantile(ends[1], coordinate) - self._quantile(ends[0], coordinate)
        return Figure(found, float(error * apart / (ends[1] - ends[0])))

    def cvar(self, level: float, coordinate: int = 0) -> Figure:
        """Mean of the worst `level` share: q - E[(q - Z)+] / level at the quantile q.

        An error of q changes it to the second order only, so that no density is needed.
        """
        found = self._quantile(float(LEVEL.checked(level)), coordinate)
        short = np.maximum(found - self.atoms.values[:, coordinate], 0.0)
        value, error = self.atoms.figure(short)
        return Figure(found - value / level, None if error is None else error / level)

    def _quantile(self, level: float, coordinate: int) -> float:
        LEVEL.checked(level)
        values, reached = self.monotone(coordinate)
        position = int(np.searchsorted(reached, level * (1 - 1e-12), side="left"))
        return float(values[min(position, len(values) - 1)])

    def __repr__(self) -> str:
        mean = self.mean()
        return (
            f"Estimate({self.name}, mean={mean.value:.5g}, standard_error="
            f"{np.nan if mean.standard_error is None else mean.standard_error:.2g}, "
            f"effective_size={self.effective_size:.4g})"
        )
