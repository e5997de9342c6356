"""Risk measures by the names that the command line gives them."""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fle.cli.kinds import number
from fle.cli.options import nearest
from fle.errors import FLEWarning

if TYPE_CHECKING:
    from fle.returns import ReturnDistribution


@dataclass(frozen=True)
class Measure:
    """A number that a distribution of returns has.

    text: as the user writes it. label: as a table shows it.
    share: whether it is a probability.
    sign: 1 where more is better, -1 where less is.
    tail: the share of returns that decides it.
    """

    text: str
    label: str
    of: "Callable[[ReturnDistribution], float]" = field(compare=False, repr=False)
    share: bool = False
    sign: int = 1
    tail: float = 1.0

    def of_law(self, law: "ReturnDistribution") -> float | None:
        """The number in a fitted law; it warns where its draws are few."""
        return self.of(law)

    def of_sample(self, law: "ReturnDistribution") -> float | None:
        """The number in a law that is a sample, None where it would rest on almost nothing."""
        if self.tail * len(law.samples) < LEAST_TAIL:
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FLEWarning)
            return self.of(law)

    def __str__(self) -> str:
        return self.text


# As in the report: fewer logged episodes in a tail than this, and it says nothing.
LEAST_TAIL = 5
ALONE = ("mean", "median", "std", "loss")
WITH_LEVEL = ("cvar", "quantile")
WITH_THRESHOLD = ("below", "above")
EXPECTED = "mean, median, std, loss, cvar:LEVEL, quantile:LEVEL, below:RETURN or above:RETURN"


def measure(text: str) -> Measure:
    """The measure that a text such as cvar:0.1 means."""
    name, colon, written = text.partition(":")
    if name in ALONE and not colon:
        return _alone(name)
    if name in WITH_LEVEL and colon:
        level = number(written)
        if not 0 < level < 1:
            raise argparse.ArgumentTypeError(
                f"{text}: a level lies strictly between 0 and 1; the worst tenth is {name}:0.1"
            )
        return _at_level(name, level)
    if name in WITH_THRESHOLD and colon:
        return _beyond(name, number(written))
    hint = "" if name in (*ALONE, *WITH_LEVEL, *WITH_THRESHOLD) else nearest(name, _NAMES)
    raise argparse.ArgumentTypeError(f"expected {EXPECTED}; got {text!r}{hint}")


_NAMES = (*ALONE, *WITH_LEVEL, *WITH_THRESHOLD)


def _alone(name: str) -> Measure:
    if name == "mean":
        return Measure(name, "mean", lambda law: float(law.mean()))
    if name == "median":
        return Measure(name, "median", lambda law: float(law.quantile(0.5)))
    if name == "std":
        return Measure(name, "standard deviation", lambda law: float(law.std()), sign=-1)
    return Measure(
        name, "chance of a loss (below 0)", lambda law: law.probability(below=0), True, -1
    )


def _at_level(name: str, level: float) -> Measure:
    text = f"{name}:{level:g}"
    if name == "cvar":
        label = f"mean of the worst {100 * level:g}%"
        return Measure(text, label, lambda law: law.cvar(level), tail=level)
    tail = min(level, 1 - level)
    label = f"{100 * level:g}% quantile"
    return Measure(text, label, lambda law: law.value_at_risk(level), tail=tail)


def _beyond(name: str, bound: float) -> Measure:
    text, label = f"{name}:{bound:g}", f"chance {name} {bound:g}"
    if name == "below":
        return Measure(text, label, lambda law: law.probability(below=bound), True, -1)
    return Measure(text, label, lambda law: law.probability(above=bound), True)


USUAL = tuple(
    measure(text)
    for text in (
        "mean",
        "std",
        "loss",
        "cvar:0.1",
        "cvar:0.05",
        "quantile:0.05",
        "median",
        "quantile:0.95",
    )
)
