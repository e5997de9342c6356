"""What a user should know about the data before trusting a number: warnings, with figures."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr

from fle.data import Dataset
from fle.data.episodes import ends_episode
from fle.data.passes import centre_and_scale, shows_next
from fle.fitting.encoding import Encoder
from fle.fitting.measurement import StageRecord
from fle.fitting.problem import RowUse
from fle.policies.answers import neighbours

# Tails of this index or heavier have no third moment, and a CVaR that few rows decide.
HEAVY_TAIL_INDEX = 3.0
LEAST_TAIL_ROWS = 10
# Nats between rows trained on and held-out rows, and how many of these can tell.
OVERFITTING, LEAST_HELD_OUT = 0.5, 50
# Means that differ by less, in units of the rewards, are equal up to rounding.
SAME_MEANS = 1e-4
# The errors of a rival that is heard have less than half the variance of what it sees [0029].
RIVAL_WEIGHT = 2 / 3
# Fewer episodes may have one length by chance.
LEAST_EPISODES = 10
# Stages of a window, and standard deviations of the return that are called a drift.
LEAST_WINDOW, DRIFT = 3, 0.05
# The share of returns that is called a tail.
TAIL = 0.02
# Share of observations outside the log that is worth a warning, and how far beyond the range of a
# column, as a share of it, an observation still counts as inside.
OUTSIDE, MARGIN = 0.01, 0.25
# Rows of each kind that are compared, and the share that must be told apart.
MOST_COMPARED, SEEN = 1000, 0.9


def data_remarks(data: Dataset, encoder: Encoder, horizon: int | None, use: RowUse) -> list[str]:
    """All remarks, in the order in which they should be read."""
    return [
        *_constant_remarks(data, use),
        *_length_remarks(data, use),
        *_tail_remarks(data),
        *_horizon_remarks(data, horizon),
        *_outside_remarks(data),
        *_precision_remarks(data, encoder),
        *_input_remarks(data, encoder),
    ]


def overfitting(known: float, held_out: float, rows: int) -> tuple[str, ...]:
    """What the losses of rows trained on and of held-out rows tell of learning by heart."""
    if rows < LEAST_HELD_OUT or not held_out - known > OVERFITTING:
        return ()
    return (
        f"the fit knows the rows it was trained on too well: their loss at the last stage is "
        f"{known:.2f}, that of held-out rows {held_out:.2f}; returns at single observations "
        "then look too certain: more rows help, or a stronger Recipe(weight_decay=...), such as "
        "0.3 or 3",
    )


def unsettled(records: Sequence[StageRecord]) -> tuple[str, ...]:
    """What the last stages of a discounted fit still changed, where it is more than chance."""
    window, moved = drift(records)
    if not moved.any():
        return ()
    mean, tail = moved
    return (
        f"the fit has not settled: over its last {window} stages the mean moved by {mean:.2f} and "
        f"the CVaR by {tail:.2f} standard deviations of the return; ask for more stages, such as "
        f"stages={2 * len(records)}",
    )


def drift(records: Sequence[StageRecord]) -> tuple[int, np.ndarray]:
    """How far mean and CVaR moved, (2,) in standard deviations of the return, and over how many
    stages; zero where it is chance.

    Means of the last tenth of the stages are held against those of the tenth before.
    """
    window = len(records) // 10
    if window < LEAST_WINDOW:
        return window, np.zeros(2)
    values = np.stack([[record.mean, record.cvar] for record in records[-2 * window :]])
    spread = np.maximum(np.mean([record.std for record in records[-window:]], axis=0), 1e-30)
    before, after = values[:window], values[window:]
    moved = np.abs(after.mean(axis=0) - before.mean(axis=0)) / spread
    # Stages that wander about one place do not drift.
    noise = np.sqrt((before.var(axis=0) + after.var(axis=0)) / window) / spread
    if not np.any((moved > DRIFT) & (moved > 3 * noise)):
        return window, np.zeros(2)
    return window, moved.max(axis=1)


def lost_tail(targets: np.ndarray, drawn: np.ndarray, rows: int) -> tuple[str, ...]:
    """Whether a first fit has the tails of what it was fitted to.

    targets, drawn: (n, d) at the same rows. rows: how many different ones there are.
    """
    found, known = [], min(rows, len(targets))
    if TAIL * known < LEAST_TAIL_ROWS:
        return ()
    for target, draw in zip(targets.T, drawn.T, strict=True):
        for sign, name in ((1, "lower"), (-1, "upper")):
            limit = np.quantile(sign * target, TAIL)
            # How far the tail goes beyond where it begins, on average over all returns.
            beyond, fitted = (np.maximum(0, limit - sign * v) for v in (target, draw))
            logged, error = beyond.mean(), beyond.std() / np.sqrt(known)
            if fitted.mean() < 0.5 * logged - 4 * error:
                found.append(f"{name} tail: {fitted.mean() / logged:.0%}")
    if not found:
        return ()
    return (
        "the first fit misses rare returns that the log shows (what it has of their size beyond "
        f"the outermost {TAIL:.0%}; {'; '.join(found)}): risks that rest on them are understated; "
        "more steps may help, such as Recipe(steps=...), or another model",
    )


def explained_by(residuals: np.ndarray, difference: np.ndarray) -> float:
    """The chance of residuals (n, d) of a fit that go with what a rival says else (n, d) as much.

    residuals e = z - m, difference f = m' - m, for means m of the fit and m' of the rival. If m is
    the mean of z, sums of e f are zero up to chance, however wrong the rival is; the statistic is
    their sum over its standard error (Chong and Hendry 1986, forecast encompassing). One-sided, as
    a rival whose errors are larger says nothing against the fit; the least of all coordinates,
    times their number.
    """
    products = residuals * difference
    error = np.sqrt(np.sum(products**2, axis=0))
    told = (np.sqrt(np.mean(difference**2, axis=0)) > SAME_MEANS) & (error > 0)
    ratio = products.sum(axis=0) / np.where(told, error, np.inf)
    return min(1.0, float(ndtr(-ratio.max())) * len(ratio))


def heard(residuals: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """The difference (n, d) of a rival, or zeros in coordinates where its own errors are large.

    The weight of the rival in the best mix of both means is sum of e f over sum of f². Where it is
    small, going over to the rival brings in more error than it takes out.
    """
    weight = np.sum(residuals * difference, axis=0)
    return np.where(weight > RIVAL_WEIGHT * np.sum(difference**2, axis=0), difference, 0.0)


def _constant_remarks(data: Dataset, use: RowUse) -> list[str]:
    """A constant return: the reward never varies, and the fit knows how often it is earned."""
    constant = [
        (name, column[0])
        for name, column in zip(data.reward_names, data.rewards.T, strict=True)
        if np.all(column == column[0])
    ]
    if any(value != 0 for _, value in constant) and not _length_is_known(data, use):
        constant = [(name, value) for name, value in constant if value == 0]
    return [
        f"{name} is {value:g} in every row: its return is a point mass, and spread and risk "
        "say nothing."
        for name, value in constant
    ]


def _length_is_known(data: Dataset, use: RowUse) -> bool:
    """Whether all episodes are equally long, and the fit can tell where they end."""
    if not data.terminations.any():
        return True
    length = common_length(data)
    return length is not None and (length == 1 or use == "step" or _end_is_seen(data))


def _length_remarks(data: Dataset, use: RowUse) -> list[str]:
    """Episodes that all end at one step: time decides, and no observation need show it."""
    length = common_length(data)
    if use == "step" or length is None or length == 1 or _end_is_seen(data):
        return []
    return [
        f"Every logged episode terminates after exactly {length} steps. If the logging stopped "
        "there, these rows are truncated, not terminated; if the problem ends there, give "
        f"horizon={length}. As it stands, the end is guessed from observations that hardly show it."
    ]


def common_length(data: Dataset) -> int | None:
    """The number of steps after which every episode terminates, if they all do after as many."""
    if data.episodes is None or not data.whole_episodes:
        return None
    lengths = np.bincount(data.episodes)
    if len(lengths) < LEAST_EPISODES or np.any(lengths != lengths[0]):
        return None
    return int(lengths[0]) if data.terminations[ends_episode(data.episodes)].all() else None


def ends_at(data: Dataset, horizon: int) -> bool:
    """Whether all episodes terminate at the horizon, and time decides it, not what is observed."""
    return horizon > 1 and common_length(data) == horizon and not _end_is_seen(data)


def _end_is_seen(data: Dataset) -> bool:
    """Whether rows that terminate look different: the nearest other row tells which they are."""
    generator = np.random.default_rng(0)
    rows = np.concatenate(
        [
            generator.permutation(np.flatnonzero(data.terminations == ends))[:MOST_COMPARED]
            for ends in (True, False)
        ]
    )
    observations = data.observations[rows].reshape(len(rows), -1)
    nearest = neighbours(observations, observations, 2)
    others = np.where(nearest[:, 0] == np.arange(len(rows)), nearest[:, 1], nearest[:, 0])
    ends = data.terminations[rows]
    return bool(np.mean(ends[others] == ends) > SEEN)


def _tail_remarks(data: Dataset) -> list[str]:
    remarks = []
    for name, column in zip(data.reward_names, data.rewards.T, strict=True):
        index = tail_index(column)
        # Two standard errors of Hill's estimate: few rows must not make an ordinary tail heavy.
        if index * (1 + 2 / np.sqrt(max(1, tail_size(column.size)))) < HEAVY_TAIL_INDEX:
            remarks.append(
                f"{name} has a heavy tail (index {index:.1f}; a normal tail is far above "
                f"{HEAVY_TAIL_INDEX:g}): CVaR at small levels rests on few rows and is unstable."
            )
    return remarks


def tail_size(rows: int) -> int:
    """A hundredth of the rows, or up to 50 of a twentieth: further in, every law looks heavy."""
    return max(rows // 100, min(50, rows // 20))


def tail_index(values: np.ndarray) -> float:
    """Hill's estimate from the largest distances to the median."""
    number = tail_size(values.size)
    if number < LEAST_TAIL_ROWS:
        return np.inf
    distances = np.abs(values - np.median(values))
    largest = np.partition(distances, -number - 1)[-number - 1 :]
    if largest[0] <= 0:
        return np.inf
    excess = float(np.mean(np.log(largest[1:] / largest[0])))
    return np.inf if excess == 0 else 1 / excess


def _horizon_remarks(data: Dataset, horizon: int | None) -> list[str]:
    if horizon is None or data.episodes is None or not np.any(data.truncations):
        return []
    longest = int(np.bincount(data.episodes).max())
    if horizon <= longest:
        return []
    return [
        f"The horizon is {horizon} steps and the longest logged episode has {longest}: "
        f"{1 - longest / horizon:.0%} of the horizon is extrapolated from earlier steps."
    ]


def _outside_remarks(data: Dataset) -> list[str]:
    """Observations that the log never shows: where episodes start, and along the way."""
    remarks = []
    # What the row after it shows was logged.
    apart = ~shows_next(data.observations, data.next_observations)
    for where, asked, total in (
        ("initial observations", data.initial_observations, None),
        (
            "next observations",
            data.next_observations[apart & ~data.terminations],
            int((~data.terminations).sum()),
        ),
    ):
        if asked is None or len(asked) == 0:
            continue
        outside, columns = _outside(data, asked)
        total = total or len(asked)
        if outside > OUTSIDE * total:
            remarks.append(
                f"{outside:,} of {total:,} {where} ({outside / total:.1%}) lie outside "
                f"what was logged ({columns}): what is said of them is extrapolated. Log data "
                "there, or leave them out."
            )
    return remarks


def _outside(data: Dataset, asked: np.ndarray) -> tuple[int, str]:
    """How many observations lie outside the log, and in what, in words."""
    logged = data.observations
    if logged.ndim == 1:
        unseen = ~np.isin(asked, logged)
        states = ", ".join(str(state) for state in np.unique(asked[unseen])[:3])
        return int(unseen.sum()), f"states {states}"
    low, high = logged.min(axis=0), logged.max(axis=0)
    room = MARGIN * (high - low)
    beyond = (asked < low - room) | (asked > high + room)
    names = data.observation_names or tuple(f"observation {i}" for i in range(logged.shape[1]))
    worst = [column for column in np.argsort(-beyond.sum(axis=0))[:3] if beyond[:, column].any()]
    words = [
        f"{names[column]}: {asked[:, column].min():g} to {asked[:, column].max():g}, logged "
        f"{low[column]:g} to {high[column]:g}"
        for column in worst
    ]
    return int(beyond.any(axis=1).sum()), "; ".join(words)


def _precision_remarks(data: Dataset, encoder: Encoder) -> list[str]:
    exact = encoder.rewards(data)
    error = np.abs(exact - exact.astype(np.float32)).max(axis=0) * encoder.reward_unit
    spread = data.rewards.std(axis=0)
    lost = (error > 1e-3 * spread) & (spread > 0)
    return [
        f"{name}: single precision changes it by up to {e:.3g}, which is {e / s:.1%} of its "
        "standard deviation. Subtract a constant from the reward if it has a large offset."
        for name, e, s, bad in zip(data.reward_names, error, spread, lost, strict=True)
        if bad
    ]


def _input_remarks(data: Dataset, encoder: Encoder) -> list[str]:
    """Only inputs in the units of the data can lose anything: others are standardised first."""
    remarks = []
    for name, values, unit in (
        ("observation", data.observations, encoder.observation_scale),
        ("action", data.actions, encoder.action_scale),
    ):
        if values.ndim == 1 or values.dtype != np.float64 or np.any(unit != 1):
            continue
        spread = centre_and_scale(values)[1]
        with np.errstate(over="ignore"):
            error = np.abs(values - values.astype(np.float32)).max(axis=0)
        varies = values.min(axis=0) < values.max(axis=0)
        remarks += [
            f"{name} {column}: single precision changes it by up to {error[column]:.3g}, which is "
            f"{error[column] / spread[column]:.1%} of its standard deviation, and this model takes "
            "it in its own units. Shift or rescale it, in the data and in the policy."
            for column in np.flatnonzero((error > 1e-3 * spread) & varies)
        ]
    return remarks
