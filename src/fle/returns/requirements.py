"""What may be required of a return: a bound on a measure of it."""

import math
import re
from dataclasses import dataclass

from fle.errors import SettingsError
from fle.returns.measures import Measure, known_forms, measure

BEHAVIOUR = "behaviour"
FORM = re.compile(
    r"^\s*(?P<measure>\S+?)(?:\s+of\s+(?P<reward>.+?))?\s*(?P<sense>>=|<=|≥|≤)\s*(?P<bound>\S+)\s*$"
)


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
