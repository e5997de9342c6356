"""The recipe of a fit: every constant of training, with the decision that chose it.

A `Recipe` given by a user says what differs from the usual; `resolve` fills in the rest from the
problem, the data and the model. Numbers in brackets are pages of `docs/decisions/`.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from fle.errors import SettingsError, nearest

HELD_OUT: Final = "held-out"

# Optimiser steps of all stages of a discounted fit, and the fewest and most of one stage [0001].
TOTAL_STEPS, FEWEST_STEPS, MOST_STEPS = 20_000, 50, 1_500
# Weight decay of a discounted fit times its rows, for each pair of input coordinates, and the most
# it may be [0009].
DECAY_A_PAIR, MOST_DECAY = 7.0, 1.0
# Weight decay is as given for batches of this size. Adam divides gradients by their noise, which in
# smaller batches is larger by the root of the ratio; decay is weakened as much [0009].
DECAY_BATCH = 500
# Weight decays that a finite-horizon fit chooses from, and how many nats better one must be to be
# chosen, at the first stage and for all later ones: its bias is worth as much [0002].
WEIGHT_DECAYS = (0.03, 0.3, 3.0)
HANDICAPS = ({0.03: 0.0, 0.3: 0.01, 3.0: 0.05}, {0.03: 0.0, 0.3: 0.03, 3.0: 0.05})
# The fewest rows for that choice.
LEAST_ROWS = 200
# Gradients are clipped to this norm [0005].
GRADIENT_NORM = 5.0
# Steps over which the learning rate rises.
WARM_UP = 100
# How far the policy's returns may be from those that the log shows, and what may be left of that
# after the last stage, in standard deviations of the return.
START, NEGLIGIBLE = 2.0, 0.01
MOST_STAGES = 5000
# A replicate of a fit, for intervals, begins at the fit. What may be left of its way from there to
# its own fixed point decides its stages; where these are more than a share of the fit's, and with
# a horizon, each has fewer steps [0020].
REFIT_LEFT, REFIT_SHARE, REFIT_STEPS = 0.05, 0.6, 0.5
# The fits of an earlier run, of a shorter log, serve as a replicate's do if they are as near, in
# standard deviations of the return [0036].
NEAR = 0.2
# A first look [0034]: optimiser steps of all stages, before a model's own factor, and what may be
# left of the first fit's error after the last stage.
QUICK_STEPS, QUICK_LEFT = 2_000, 0.1
FIRST_LOOK = (
    "a first look: fewer stages and optimiser steps than usual, rows are not weighted by where the "
    "policy goes, and no other estimator was asked; decide by an evaluation without quick=True"
)
# Least scale of returns, in units of the rewards: where all are zero, it would shrink to nothing.
LEAST_SCALE = 1e-6


@dataclass(frozen=True)
class Recipe:
    """How every stage is trained. What is None is chosen: by the problem, the data and the model.

    Each setting stands for itself: giving one leaves all others as they were chosen.

    steps: optimiser steps a stage.
    batch_size: rows a step.
    learning_rate: peak learning rate of Adam.
    weight_decay: decoupled decay of the weight matrices, for batches of 500 rows and less in
        smaller ones; "held-out" chooses it at the first stages by the loss on held-out rows.
    draws: target draws a row gets each time it is used, with fresh next actions and returns.
    schedule: "stage" lowers the learning rate to zero in every stage and starts the optimiser anew;
        "fit" does so once, over all stages; "constant" never lowers it.
    average: share of a stage's last steps whose parameters are averaged into the stage's model.
    frame_tolerance: how far, relative to the return scale, the targets may move before returns are
        standardised anew; 0 does it at every stage.
    start: "previous" continues from the previous stage's parameters, "fresh" from new ones.
    held_out: share of the rows held out to measure the loss of every stage.
    trace: probability with which a target follows the log one step further where the log did what
        the policy chose; 0 asks the previous fit after one step (lambda of TD(lambda)).
    occupancy: whether rows are weighted by where the policy goes, as the log tells it, where that
        changes anything and leaves enough of the rows.
    trend: whether the location of a return follows a quadratic trend of the inputs beside the
        network (`GMM`, `Gaussian`): with a horizon; without one where the log says so.
    component_prior: strength, in nats, of the regulariser that draws the components of a mixture to
        equal weights and standard normals, so that none is lost.
    beta: how far gradients by means are evened out between narrow and wide components of a mixture;
        0 follows the plain likelihood. Seitzer et al. (2022).
    scale_floor: least standard deviation of a component, as a share of the return scale.
    objective: "own" fits a model as it is meant to be, most by maximum likelihood; "energy" fits it
        by the energy distance between its draws and the targets (`GMM`, `Gaussian`, `Flow`,
        `Quantile`).

    Example: `fle.evaluate(data, policy, gamma=0.9, recipe=fle.Recipe(weight_decay=0.3))`.
    """

    steps: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | Literal["held-out"] | None = None
    draws: int | None = None
    schedule: Literal["stage", "fit", "constant"] | None = None
    average: float | None = None
    frame_tolerance: float | None = None
    start: Literal["previous", "fresh"] | None = None
    held_out: float | None = None
    trace: float | None = None
    occupancy: bool | None = None
    trend: bool | None = None
    component_prior: float | None = None
    beta: float | None = None
    scale_floor: float | None = None
    objective: Literal["own", "energy"] | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "draws"):
            self._require(name, "a whole number of at least 1", _whole)
        self._require("learning_rate", "positive and finite", lambda v: 0 < v < math.inf)
        self._require(
            "weight_decay",
            f'at least 0 and finite, or "{HELD_OUT}"',
            lambda v: v == HELD_OUT or (not isinstance(v, str) and 0 <= v < math.inf),
        )
        self._require("average", "in (0, 1]", lambda v: 0 < v <= 1)
        self._require("held_out", "in (0, 1)", lambda v: 0 < v < 1)
        self._require("trace", "in [0, 1]", lambda v: 0 <= v <= 1)
        for name in ("frame_tolerance", "component_prior", "beta", "scale_floor"):
            self._require(name, "at least 0 and finite", lambda v: 0 <= v < math.inf)
        schedules = ("stage", "fit", "constant")
        self._require("schedule", '"stage", "fit" or "constant"', lambda v: v in schedules)
        self._require("objective", '"own" or "energy"', lambda v: v in ("own", "energy"))
        self._require("start", '"previous" or "fresh"', lambda v: v in ("previous", "fresh"))
        for name in ("trend", "occupancy"):
            self._require(name, "True or False", lambda v: isinstance(v, bool | np.bool_))

    def _require(self, name: str, expected: str, holds: Any) -> None:
        value = getattr(self, name)
        try:
            right = value is None or bool(holds(value))
        except TypeError:
            right = False
        if not right:
            raise SettingsError(f"{name}: expected {expected}, got {value!r}.")

    @classmethod
    def of(cls, given: "Recipe | Mapping[str, Any] | None") -> "Recipe":
        """A recipe from what a user may give: one, a mapping of settings, or nothing."""
        if given is None:
            return cls()
        if isinstance(given, Recipe):
            return given
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = [name for name in given if name not in known]
        if unknown:
            raise SettingsError(
                f"A recipe has no {unknown[0]!r}{nearest(unknown[0], known)}; expected any of "
                f"{', '.join(known)}."
            )
        return cls(**given)

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are not left to be chosen."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class Resolved:
    """A recipe with every setting chosen; see `Recipe` for what each means."""

    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float | Literal["held-out"]
    draws: int
    schedule: Literal["stage", "fit", "constant"]
    average: float
    frame_tolerance: float
    start: Literal["previous", "fresh"]
    held_out: float
    trace: float
    occupancy: bool
    trend: bool
    component_prior: float
    beta: float
    scale_floor: float
    objective: Literal["own", "energy"] = "own"

    def frame_is_settled(self, stage: int, stages: int) -> bool:
        """Whether the frame stays as it is: once the learning rate has fallen, a model could no
        longer follow a change of units [0003].
        """
        return self.schedule == "fit" and stage > stages // 2

    def learning_rates(self, stage: int, stages: int) -> np.ndarray:
        """(steps,) Learning rate of every step of one stage: a short rise, then half a cosine."""
        if self.schedule == "constant":
            return np.full(self.steps, self.learning_rate, np.float32)
        if self.schedule == "stage":
            stage, stages = 0, 1
        total = self.steps * stages
        step = np.arange(stage * self.steps, (stage + 1) * self.steps)
        rise = np.minimum(1, (step + 1) / min(WARM_UP, total))
        cosine = 0.5 * (1 + np.cos(np.pi * step / total))
        return (self.learning_rate * rise * cosine).astype(np.float32)

    def average_rates(self) -> np.ndarray:
        """(steps,) Weight of every step's parameters in the running average of a stage."""
        first = min(self.steps - 1, round(self.steps * (1 - self.average)))
        count = np.maximum(1, np.arange(self.steps) - first + 1)
        return (1 / count).astype(np.float32)


class Tuning(NamedTuple):
    """How a model's usual recipe differs: factors on the first three, values for the others."""

    steps: float = 1.0
    learning_rate: float = 1.0
    batch_size: float = 1.0
    draws: int | None = None
    weight_decay: float | None = None
    component_prior: float | None = None


# By the name of the model [0007, 0009, 0011, 0013].
TUNING = {
    "gmm": Tuning(steps=4.0, learning_rate=0.7, batch_size=0.2, component_prior=5e-4),
    "autoregressive": Tuning(learning_rate=0.7, batch_size=0.7, draws=2),
    "flow": Tuning(steps=0.75, learning_rate=0.5, batch_size=0.5, draws=2),
    "diffusion": Tuning(steps=1.8, learning_rate=0.8, batch_size=0.5, weight_decay=0.03),
    "ddpm": Tuning(steps=3.0, learning_rate=0.1, draws=1),
}

# Every stage is a fit of its own: its own decay of the learning rate, its own scale [0003].
ONE_FIT = Resolved(
    steps=MOST_STEPS,
    batch_size=500,
    learning_rate=1e-2,
    weight_decay=HELD_OUT,
    draws=4,
    schedule="stage",
    average=0.5,
    frame_tolerance=0.0,
    start="previous",
    held_out=0.05,
    trace=1.0,
    occupancy=True,
    trend=True,
    component_prior=0.0,
    beta=0.5,
    scale_floor=0.01,
)


def usual(*, repeats: int, rows: int, coordinates: int, tuning: Tuning) -> Resolved:
    """The recipe of a problem if nothing is given.

    repeats: how often one and the same update is repeated, towards a fixed point: the stages of a
        discounted problem, and 1 where every stage has rows or steps of its own.
    rows: of the data. coordinates: of observation and action, one for a discrete one.

    Many short stages have one decay of the learning rate over all of them, a scale that settles,
    no trend [0012] unless Q is quadratic [0042], and components that are kept [0011]. Their first
    stage, which sees rewards alone, says little about how smooth returns are: weight decay goes
    with what there is to overfit, and how few the rows are [0009].
    """
    recipe = ONE_FIT
    if repeats > 1:
        recipe = dataclasses.replace(
            ONE_FIT,
            steps=min(MOST_STEPS, max(FEWEST_STEPS, -(-TOTAL_STEPS // repeats))),
            learning_rate=5e-3,
            weight_decay=min(MOST_DECAY, DECAY_A_PAIR * coordinates**2 / rows),
            schedule="fit",
            frame_tolerance=0.1,
            trend=False,
            component_prior=5e-4,
        )
    changes = tuning._asdict()
    return dataclasses.replace(
        recipe,
        steps=round(changes.pop("steps") * recipe.steps),
        learning_rate=changes.pop("learning_rate") * recipe.learning_rate,
        batch_size=round(changes.pop("batch_size") * recipe.batch_size),
        **{name: value for name, value in changes.items() if value is not None},
    )


def first_look(chosen: Resolved, *, stages: int, tuning: Tuning) -> Resolved:
    """The recipe of `quick=True`, from the usual one: all that makes a fit quick, but for stages.

    stages: of the fit. tuning: of its model.
    """
    steps = max(FEWEST_STEPS, round(tuning.steps * QUICK_STEPS / stages))
    searched = chosen.weight_decay == HELD_OUT
    return dataclasses.replace(
        chosen,
        steps=min(chosen.steps, steps),
        weight_decay=WEIGHT_DECAYS[0] if searched else chosen.weight_decay,
        occupancy=False,
    )


def resolve(given: Recipe, chosen: Resolved) -> Resolved:
    """The chosen recipe with the settings that were given."""
    return dataclasses.replace(chosen, **given.given)


def _whole(value: Any) -> bool:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return whole and bool(value >= 1)
