"""A model of the policy that logged the data: taken from the log, or estimated and checked.

No row is judged by a fit that saw its episode. Decision 0016 has the figures behind the constants.
"""

from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from fle.data import Dataset
from fle.data.passes import Array
from fle.errors import SettingsError
from fle.fitting.cross_fitting import Blend, Choice, CrossFitted, cross_fitted, dealt_rows
from fle.policies.row_policies import following_rows

# Smoothing of counts, in rows.
STRENGTHS = (0.1, 0.5, 2.0, 8.0, 32.0, 128.0)
BINS = 15
# Miscalibration that no use of propensities feels, however sure it is.
TOLERATED = 0.02
# Standard errors, and the Kolmogorov distance times root n, that chance exceeds once in 1,000.
BEYOND_CHANCE, KOLMOGOROV = 3.1, 1.95
# Expected Kolmogorov distance of n uniform numbers, times root n.
KOLMOGOROV_MEAN = 0.8687
# Share of rows that may have an action's coordinate in common with another row.
REPEATED = 0.05
LOGGED = "as it was logged with the data"
# An error of propensities comes back at every step of an episode: one beyond this many times what
# chance alone makes of a perfect model is not risked.
BY_CHANCE = 1.5


@final
@dataclass(frozen=True)
class Calibration:
    """How far stated probabilities are from what happened, on rows that no fit saw.

    measure: what `error` is.
    floor: what a perfect model would have, on average, on as many rows.
    most: the largest error that is still called calibrated.
    remark: why there can be no calibration, where that is so.
    """

    measure: str
    error: float
    floor: float
    most: float
    remark: str = ""

    @property
    def calibrated(self) -> bool:
        """Whether the error is within what chance, or no consequence, would explain."""
        return self.error <= self.most and not self.remark

    def in_words(self) -> str:
        """The figures and the verdict in one sentence."""
        verdict = "calibrated" if self.calibrated else "not calibrated"
        figures = f"{self.measure} {self.error:.4f}, {self.floor:.4f} by chance alone: {verdict}"
        return f"{figures}; {self.remark}" if self.remark else figures


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class LoggingPolicy:
    """The policy mu that logged the data, at each of its n rows.

    Attributes:
        logged: (n,), mu(a_i | x_i): the probability of the logged action, or its density.
        probabilities: (n, A), mu(. | x_i); None if actions are continuous.
        next_probabilities: (n, A), mu(. | x'_i) at the next observations; None likewise.
        known: whether `logged` was read from the data.
        source: where it comes from, in words.
        calibration: how well it fits what was logged.
        model: what estimates it, None if nothing was estimated by a network.

    >>> policy = logging_policy(data)
    >>> ratios = target[np.arange(len(data)), data.actions] / policy.logged
    """

    logged: Array
    probabilities: Array | None
    next_probabilities: Array | None
    known: bool
    source: str
    calibration: Calibration
    model: CrossFitted | None

    @property
    def calibrated(self) -> bool:
        """Whether it may be relied on where exactness needs the right propensities."""
        return self.calibration.calibrated

    @property
    def reliable(self) -> bool:
        """Whether ratios may be multiplied over the steps of an episode: known, or as good."""
        by_chance = self.calibration.error <= BY_CHANCE * self.calibration.floor
        return self.known or (self.calibrated and by_chance)

    def densities(self, actions: npt.ArrayLike) -> Array:
        """Densities (n,) or (n, m) of actions (n, k) or (n, m, k), given each row's observation.

        They are the model's, also where the densities of the logged actions are known.
        """
        return self._densities(actions, following=False)

    def next_densities(self, actions: npt.ArrayLike) -> Array:
        """The same, given each row's next observation."""
        return self._densities(actions, following=True)

    def _densities(self, actions: npt.ArrayLike, *, following: bool) -> Array:
        if self.model is None or self.probabilities is not None:
            raise SettingsError(
                "densities are for continuous actions, and these are discrete;"
                " use probabilities and next_probabilities"
            )
        given, rows = np.asarray(actions, np.float64), len(self.logged)
        dim = self.model.centres.shape[1]
        if given.ndim not in (2, 3) or len(given) != rows or given.shape[-1] != dim:
            raise SettingsError(
                f"actions: expected shape ({rows}, {dim}) or ({rows}, m, {dim}), got {given.shape}"
            )
        several = given.reshape(rows, -1, dim)
        everything = np.arange(rows)
        columns = [
            self.model.ask(everything, several[:, number], following=following)[:, 0]
            for number in range(several.shape[1])
        ]
        return np.exp(np.stack(columns, axis=1)).reshape(given.shape[:-1])

    def in_words(self) -> str:
        """Where it comes from and whether it is calibrated, in one sentence."""
        return f"logging policy {self.source}; {self.calibration.in_words()}"


def logging_policy(data: Dataset, *, seed: int = 0, folds: int | None = None) -> LoggingPolicy:
    """The policy that logged the data: its propensities where they are logged, else an estimate.

    Estimates are of maximum likelihood: smoothed counts if observations and actions are discrete,
    else a network, whose outputs are logits or a mixture of Gaussians. They are cross-fitted (as
    in Chernozhukov et al. 2018): the episodes are dealt into `folds` parts, and the rows of a part
    are judged by a fit to the other parts. Without episodes, rows are dealt. A probability is at
    least 1/(n + A). Where one propensity a row is logged, the other actions of that row share what
    is left as the estimate says. Row weights say what an evaluation counts, not who acted, and are
    not used.

    >>> policy = logging_policy(data)
    >>> print(policy.in_words())
    """
    if folds is not None and (folds < 2 or folds != int(folds)):
        raise SettingsError(f"folds: expected a whole number of at least 2, got {folds!r}.")
    logged = data.propensities
    if logged is not None and logged.ndim == 2:
        return _fully_logged(data, logged, seed, folds)
    estimate = _estimated(data, seed, folds)
    return estimate if logged is None else _with_logged(estimate, logged, data)


def at_other_rows(policy: LoggingPolicy, data: Dataset) -> LoggingPolicy:
    """What a policy of some rows says of other episodes of the same log.

    Only next observations that are another row's have probabilities; none of the others is used
    where targets follow the log.
    """
    model, rows = policy.model, np.arange(len(data))
    if data.number_of_actions is not None and data.number_of_observations is not None:
        return logging_policy(data)
    if model is not None:
        # No part was fitted to these episodes, and any may judge them.
        model = replace(model, parts=np.zeros_like(rows), inputs=replace(model.inputs, data=data))
    if policy.probabilities is None:
        return replace(policy, logged=np.ones(len(data)), model=model)
    here = data.propensities
    if model is not None:
        here = model.ask(rows, data.actions)
        least = 1 / (len(policy.logged) + here.shape[1])
        here *= 1 - least * here.shape[1]
        here += least
        if data.propensities is not None:
            here = _completed(here, data.propensities, data.actions)
    if here is None:
        return logging_policy(data)
    following, _ = following_rows(data)
    logged = here[rows, data.actions]
    return replace(
        policy, logged=logged, probabilities=here, next_probabilities=here[following], model=model
    )


def _completed(estimate: Array, logged: Array, actions: Array) -> Array:
    """Probabilities (n, A) with those of the logged actions as they were logged."""
    here, rows = estimate.astype(np.float64), np.arange(len(logged))
    here[rows, actions] = 0.0
    left = here.sum(axis=1)
    here *= ((1 - logged) / np.where(left > 0, left, 1.0))[:, None]
    here[rows, actions] = logged
    return here


def _estimated(data: Dataset, seed: int, folds: int | None) -> LoggingPolicy:
    parts = dealt_rows(data, folds, seed)
    unit = "rows" if data.episodes is None else "episodes"
    how = f"cross-fitted over {parts.max() + 1} parts by {unit}"
    rows, model = np.arange(len(data)), None
    if data.number_of_actions is None:
        model = cross_fitted(data, parts, seed, Blend(data.actions.shape[1]))
        answers = model.ask(rows, data.actions)
        return LoggingPolicy(
            logged=np.exp(answers[:, 0]),
            probabilities=None,
            next_probabilities=None,
            known=False,
            source=f"estimated by a mixture density network, {how}",
            calibration=_uniformity(answers[:, 1:], data.actions),
            model=model,
        )
    if data.number_of_observations is not None:
        here, after = _counted(data, parts, data.number_of_actions)
    else:
        model = cross_fitted(data, parts, seed, Choice(data.number_of_actions))
        here = model.ask(rows, data.actions)
        following, stands = following_rows(data)
        after, apart = here[following], np.flatnonzero(~stands)
        after[apart] = model.ask(apart, data.actions[apart], following=True)
    least = 1 / (len(data) + data.number_of_actions)
    for table in (here, after):
        table *= 1 - least * table.shape[1]
        table += least
    return LoggingPolicy(
        logged=here[rows, data.actions],
        probabilities=here,
        next_probabilities=after,
        known=False,
        source=f"estimated by {'counts' if model is None else 'a network'}, {how}",
        calibration=_expected_error(here, data.actions),
        model=model,
    )


def _fully_logged(data: Dataset, here: Array, seed: int, folds: int | None) -> LoggingPolicy:
    """All probabilities are in the log, but for those at next observations without a row."""
    following, stands = following_rows(data)
    after = here[following]
    unknown = ~stands & ~data.terminations
    if unknown.any():
        estimate = _estimated(data, seed, folds).next_probabilities
        after = after if estimate is None else np.where(unknown[:, None], estimate, after)
    return LoggingPolicy(
        logged=here[np.arange(len(data)), data.actions],
        probabilities=here,
        next_probabilities=after,
        known=True,
        source=LOGGED,
        calibration=_expected_error(here, data.actions),
        model=None,
    )


def _with_logged(estimate: LoggingPolicy, logged: Array, data: Dataset) -> LoggingPolicy:
    """Propensities as they were logged, and what the estimate says of all other actions.

    No other policy has a higher expected log likelihood than the one that acted.
    """
    gain = np.log(estimate.logged) - np.log(logged)
    error = BEYOND_CHANCE * gain.std() / np.sqrt(len(gain))
    lag = Calibration("log likelihood short of an estimate's by", gain.mean(), 0.0, error)
    known = replace(estimate, logged=logged, known=True, source=LOGGED, calibration=lag)
    if estimate.probabilities is None or estimate.next_probabilities is None:
        return known
    here = _completed(estimate.probabilities, logged, data.actions)
    following, stands = following_rows(data)
    after = np.where(stands[:, None], here[following], estimate.next_probabilities)
    return replace(known, probabilities=here, next_probabilities=after)


def _counted(data: Dataset, parts: Array, actions: int) -> tuple[Array, Array]:
    """Shares of actions by state, and by step where the problem has steps; each level is smoothed
    towards the one above: all states, the state, the state at its step.
    """
    states = np.concatenate([data.observations, data.next_observations])
    levels = [np.zeros_like(states), states]
    if data.steps is not None:
        steps = np.concatenate([data.steps, data.steps + 1])
        levels.append(np.unique(np.stack([states, steps]), axis=1, return_inverse=True)[1])
    cells = [level.reshape(2, -1) for level in levels]
    tables = np.empty((2, len(data), actions))
    for part in range(parts.max() + 1):
        mine, others = parts == part, parts != part
        shares = np.full((2, int(mine.sum()), actions), 1 / actions)
        training = np.full((int(others.sum()), actions), 1 / actions)
        for cell in cells:
            number = cell.max() + 1
            flat = cell[0, others] * actions + data.actions[others]
            counts = np.bincount(flat, minlength=number * actions).reshape(number, actions)
            # One row of a cell stands for it: all of them have the same parent.
            seen, first = np.unique(cell[0, others], return_index=True)
            strength = _strength(counts[seen], training[first])
            rows = counts.sum(axis=1)
            shares, training = (
                (counts[at] + strength * above) / (rows[at] + strength)[..., None]
                for at, above in ((cell[:, mine], shares), (cell[0, others], training))
            )
        tables[:, mine] = shares
    return tables[0], tables[1]


def _strength(counts: Array, above: Array) -> float:
    """How many rows the level above is worth: the Dirichlet prior of the highest evidence."""

    def evidence(strength: float) -> float:
        prior = strength * above
        return float(
            np.sum(gammaln(counts + prior) - gammaln(prior))
            - np.sum(gammaln(counts.sum(axis=1) + strength) - gammaln(strength))
        )

    return max(STRENGTHS, key=evidence)


def _expected_error(table: Array, actions: Array) -> Calibration:
    """Expected calibration error in total variation, with as many rows in each bin.

    1/2 sum_a sum_b (n_b / n) |mean of p(a) - share of a|, over bins b of rows alike in p(a).
    """
    error = floor = spread = 0.0
    starts = np.unique(np.linspace(0, len(table), BINS, endpoint=False).astype(int))
    for action, column in enumerate(table.T):
        # Equal values share a bin.
        edges = np.partition(column, starts)[starts]
        bins = np.searchsorted(edges, column, side="right")
        gaps = np.bincount(bins, column - (actions == action)) / len(table)
        deviations = np.sqrt(np.bincount(bins, column * (1 - column))) / len(table)
        # Of a normal gap: mean and variance of its absolute value.
        error += np.abs(gaps).sum() / 2
        floor += np.sqrt(2 / np.pi) * deviations.sum() / 2
        spread += np.sqrt((1 - 2 / np.pi) * np.square(deviations).sum()) / 2
    most = floor + max(BEYOND_CHANCE * spread, TOLERATED)
    return Calibration("expected calibration error", error, floor, most)


def _uniformity(places: Array, actions: Array) -> Calibration:
    """Kolmogorov distance of places from uniform ones, that of the worst coordinate."""
    rows = len(places)
    ordered, steps = np.sort(places, axis=0), np.arange(rows + 1)[:, None] / rows
    error = float(np.max(np.maximum(steps[1:] - ordered, ordered - steps[:-1])))
    repeated = max(1 - len(np.unique(column)) / rows for column in actions.T)
    remark = (
        f"{repeated:.0%} of the actions repeat a value, as clipped or rounded ones do, and such"
        " values have no density"
        if repeated > REPEATED
        else ""
    )
    floor, most = KOLMOGOROV_MEAN / np.sqrt(rows), KOLMOGOROV / np.sqrt(rows) + TOLERATED
    return Calibration("Kolmogorov distance of ranks from uniform", error, floor, most, remark)
