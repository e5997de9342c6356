"""The register of risk measures: what each is called and means, and what may be required of it.

`measure("cvar:0.1")` finds one. Everything that shows, ranks or asks for measures reads `REGISTER`;
a new `Family` in it appears in every table.
"""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fle.errors import FLEWarning, SettingsError, nearest
from fle.returns import risk
from fle.returns.risk import AVERSION, LEVEL, ORDER, THRESHOLD, Parameter

# The tail that is looked at where nobody names one: the worst tenth.
RISK_LEVEL = 0.1
# Fewer draws than this in a tail, and what is said of it is mostly luck: it is said with a warning.
WANTED_IN_TAIL = 20
# Fewer than this, and it says nothing: a table leaves it out.
LEAST_IN_TAIL = 5
BEHAVIOUR = "behaviour"
FORM = re.compile(
    r"^\s*(?P<measure>\S+?)(?:\s+of\s+(?P<reward>.+?))?\s*(?P<sense>>=|<=|≥|≤)\s*(?P<bound>\S+)\s*$"
)


@dataclass(frozen=True)
class Family:
    """One measure, or one for each value of its parameters.

    Args:
        name: as users write it, before the parameters.
        label: for tables; {0}, {1} stand for the parameters in words.
        definition: the formula, with Z for the return.
        compute: (samples (n,), *parameters, weights=None) -> the number.
        parameters: what it is asked at.
        direction: 1 where more is better, -1 where less is.
        probability: whether it is one.
        tail: (samples, weights, *parameters) -> the share of returns that decides it.
        heading: the label where a table has little room.
        shown: parameters at which every table shows it.
        further: parameters at which the longest table of a report shows it.
    """

    name: str
    label: str
    definition: str
    compute: Callable[..., float | risk.FloatArray]
    parameters: tuple[Parameter, ...] = ()
    direction: int = 1
    probability: bool = False
    tail: Callable[..., float] = lambda *_: 1.0
    heading: str | None = None
    shown: tuple[tuple[float, ...], ...] = ()
    further: tuple[tuple[float, ...], ...] = ()

    @property
    def form(self) -> str:
        """How it is written: the name and its parameters, those in brackets optional."""
        ends = (f":{p.name}" if p.default is None else f"[:{p.name}]" for p in self.parameters)
        return self.name + "".join(ends)

    def at(self, *values: float) -> "Measure":
        """The measure at these parameters; those with a default may be left out."""
        defaults = [parameter.default for parameter in self.parameters[len(values) :]]
        if len(values) > len(self.parameters) or None in defaults:
            written = ":".join([self.name, *map(_plain, values)])
            raise SettingsError(f"measure: expected {self.form}, got {written!r}")
        filled = [*values, *(default for default in defaults if default is not None)]
        checked = (p.checked(v) for p, v in zip(self.parameters, filled, strict=True))
        return Measure(self, tuple(float(value) for value in checked))


@dataclass(frozen=True)
class Measure:
    """A number that every distribution of a scalar return has: a family at its parameters."""

    family: Family
    parameters: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """As users write it; what may be left out is."""
        values = list(self.parameters)
        while values and values[-1] == self.family.parameters[len(values) - 1].default:
            values.pop()
        return ":".join([self.family.name, *map(_plain, values)])

    @property
    def label(self) -> str:
        """As a table shows it."""
        return self._filled(self.family.label)

    @property
    def heading(self) -> str:
        """As a narrow column shows it."""
        return self._filled(self.family.heading or self.family.label)

    @property
    def direction(self) -> int:
        """1 where more is better, -1 where less is."""
        return self.family.direction

    @property
    def probability(self) -> bool:
        """Whether it is a probability."""
        return self.family.probability

    def of(self, samples: ArrayLike, weights: risk.Weights = None) -> float:
        """The number, from a sample (n,) and its weights (n,)."""
        return float(self.family.compute(samples, *self.parameters, weights=weights))

    def tail(self, samples: ArrayLike, weights: risk.Weights = None) -> float:
        """The share of the returns that decides it."""
        return self.family.tail(samples, weights, *self.parameters)

    def _filled(self, template: str) -> str:
        pairs = zip(self.family.parameters, self.parameters, strict=True)
        return template.format(*(parameter.words(value) for parameter, value in pairs))

    def __str__(self) -> str:
        return self.text


def measure(asked: str | Measure) -> Measure:
    """The measure that a text means.

    Example:
        >>> measure("cvar:0.1").of([1.0, 2.0, 3.0, 4.0, 5.0])
        1.0
        >>> measure("lower_partial_moment:3:2").label
        'lower partial moment below 3, order 2'
    """
    if isinstance(asked, Measure):
        return asked
    name, *written = asked.split(":")
    family = REGISTER.get(name)
    if family is None:
        hint = nearest(name, REGISTER)
        raise SettingsError(f"measure: expected one of {known_forms()}; got {asked!r}{hint}")
    try:
        values = [float(text) for text in written]
    except ValueError:
        raise SettingsError(f"measure: expected {family.form}, got {asked!r}") from None
    return family.at(*values)


def known_forms() -> str:
    """How every measure is written, for help and errors."""
    return ", ".join(family.form for family in REGISTER.values())


def usual_measures() -> tuple[Measure, ...]:
    """What every table shows."""
    return tuple(family.at(*values) for family in REGISTER.values() for values in family.shown)


def further_measures() -> tuple[Measure, ...]:
    """What only the longest table of a report shows."""
    return tuple(family.at(*values) for family in REGISTER.values() for values in family.further)


def enough_in_tail(share: ArrayLike, size: float, least: int = LEAST_IN_TAIL) -> NDArray[np.bool_]:
    """Whether a sample of this (effective) size has so many draws in a tail, or in each of some.

    What rests on all returns has no tail, and is always said.
    """
    shares = np.asarray(share, dtype=float)
    # Rounding: 0.0002 * 100_000 is a hair below 20.
    return (shares >= 1) | (shares * size >= least * (1 - 1e-9))


def warn_about_thin_tail(share: float, size: float, *, stacklevel: int) -> None:
    """Say so where a sample of this (effective) size has few draws in the tail."""
    if not enough_in_tail(share, size, WANTED_IN_TAIL):
        warnings.warn(
            f"Only about {share * size:.3g} of {size:.10g} draws lie in a tail of {share:.4g}; at "
            f"least {WANTED_IN_TAIL} are wanted. Use a larger sample_size or a wider tail.",
            FLEWarning,
            stacklevel=stacklevel + 1,
        )


def _plain(value: float) -> str:
    return f"{value:.15g}"


def _tilted_share(samples: ArrayLike, weights: risk.Weights, aversion: float) -> float:
    """The share that counts once returns are weighted by exp(-aversion Z)."""
    values, masses = risk.checked_sample(samples, weights)
    tilted = np.exp(aversion * (values.min() - values))
    if masses is not None:
        tilted = tilted * masses
    share = risk.effective_size(values, tilted) / risk.effective_size(values, masses)
    return min(share, 1.0)


def _outer_share(_: ArrayLike, __: risk.Weights, level: ArrayLike) -> float:
    """The narrower side of a level, or of the outermost of several."""
    levels = np.asarray(level, dtype=float)
    return float(np.minimum(levels, 1 - levels).min(initial=0.5))


def _narrowest(_: ArrayLike, __: risk.Weights, level: ArrayLike) -> float:
    return float(np.min(level, initial=1.0))


FAMILIES: Sequence[Family] = (
    Family("mean", "mean", "E[Z]", risk.mean, shown=((),)),
    Family(
        "std",
        "standard deviation",
        "sqrt(E[(Z − E[Z])²])",
        risk.std,
        direction=-1,
        heading="std",
        shown=((),),
    ),
    Family("median", "median", "inf {z : P(Z ≤ z) ≥ 1/2}", risk.median, shown=((),)),
    Family(
        "quantile",
        "{0} quantile",
        "inf {z : P(Z ≤ z) ≥ LEVEL}",
        risk.quantile,
        (LEVEL,),
        tail=_outer_share,
        shown=((0.05,), (0.95,)),
        further=((0.01,), (0.25,), (0.75,), (0.99,)),
    ),
    Family(
        "value_at_risk",
        "value at risk at {0}",
        "the best of the worst LEVEL share of returns, which is quantile:LEVEL",
        risk.quantile,
        (LEVEL,),
        tail=_outer_share,
        heading="VaR {0}",
    ),
    Family(
        "loss",
        "chance of a loss (below 0)",
        "P(Z < 0)",
        risk.loss,
        direction=-1,
        probability=True,
        heading="loss",
        shown=((),),
    ),
    Family(
        "cvar",
        "mean of the worst {0}",
        "max over b of b − E[(b − Z)⁺] / LEVEL: the mean of the worst LEVEL share of returns",
        risk.cvar,
        (LEVEL,),
        tail=_narrowest,
        heading="worst {0}",
        shown=((RISK_LEVEL,), (0.05,)),
        further=((0.01,), (0.25,)),
    ),
    Family(
        "upper_cvar",
        "mean of the best {0}",
        "min over b of b + E[(Z − b)⁺] / LEVEL: the mean of the best LEVEL share of returns",
        risk.upper_cvar,
        (LEVEL,),
        tail=_narrowest,
        heading="best {0}",
        further=((RISK_LEVEL,),),
    ),
    Family(
        "below",
        "chance below {0}",
        "P(Z < RETURN)",
        risk.below,
        (THRESHOLD,),
        direction=-1,
        probability=True,
    ),
    Family(
        "above", "chance above {0}", "P(Z > RETURN)", risk.above, (THRESHOLD,), probability=True
    ),
    Family(
        "lower_partial_moment",
        "lower partial moment below {0}, order {1}",
        "E[((RETURN − Z)⁺)^ORDER], ORDER 1 if left out: the mean shortfall",
        risk.lower_partial_moment,
        (THRESHOLD, ORDER),
        direction=-1,
        heading="LPM {0}, order {1}",
        further=((0.0,), (0.0, 2.0)),
    ),
    Family(
        "entropic",
        "entropic certainty equivalent, aversion {0}",
        "−log(E[exp(−AVERSION Z)]) / AVERSION",
        risk.entropic,
        (AVERSION,),
        tail=_tilted_share,
        heading="entropic {0}",
    ),
    Family(
        "expectile",
        "{0} expectile",
        "the e with LEVEL E[(Z − e)⁺] = (1 − LEVEL) E[(e − Z)⁺]",
        risk.expectile,
        (LEVEL,),
        tail=_outer_share,
        further=((0.1,), (0.9,)),
    ),
)
REGISTER: dict[str, Family] = {family.name: family for family in FAMILIES}


@dataclass(frozen=True)
class Requirement:
    """A bound on a measure of the return: a number, or what the policy that logged the data has.

    measure: of the return. reward: which of several; None for the only one, or their sum.
    at_least: whether the bound is a lower one. bound: None stands for the behaviour policy's own.

    Example:
        >>> Requirement.of("cvar:0.1 >= 12").bound
        12.0
        >>> str(Requirement.of("mean of revenue >= behaviour"))
        'mean of revenue >= behaviour'
    """

    measure: Measure
    reward: str | None
    at_least: bool
    bound: float | None

    @classmethod
    def of(cls, text: "str | Requirement") -> "Requirement":
        """From what a user writes: MEASURE [of REWARD] >= NUMBER, or <=, or behaviour."""
        if isinstance(text, Requirement):
            return text
        found = FORM.match(text)
        if found is None:
            raise SettingsError(
                "require: expected MEASURE >= BOUND or MEASURE <= BOUND, such as 'cvar:0.1 >= 12', "
                f"'loss <= 0.05' or 'mean >= {BEHAVIOUR}'; got {text!r}. Measures are "
                f"{known_forms()}."
            )
        bound = found["bound"]
        value = None
        if bound not in (BEHAVIOUR, "behavior"):
            value = _number(bound, text)
        return cls(measure(found["measure"]), found["reward"], found["sense"] in ">=≥", value)

    def __str__(self) -> str:
        reward = "" if self.reward is None else f" of {self.reward}"
        bound = BEHAVIOUR if self.bound is None else f"{self.bound:g}"
        return f"{self.measure}{reward} {'>=' if self.at_least else '<='} {bound}"


def _number(bound: str, text: str) -> float:
    try:
        value = float(bound)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise SettingsError(
            f"require: expected a finite number or {BEHAVIOUR} as the bound, got {bound!r} in "
            f"{text!r}."
        )
    return value
