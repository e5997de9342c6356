"""What other estimators say of the same return, and where they disagree beyond chance.

An estimate and an opinion are read from one log. If the estimate is the more efficient of both, the
difference between them has the variance of the opinion less that of the estimate (Hausman 1978);
so it is judged by the larger of their standard errors, not by the root of the sum of squares, which
holds for two logs. Decision 0025 has the figures behind the constants.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from fle.returns.measures import RISK_LEVEL, further_measures, measure, usual_measures

# Chance of a warning where all standard errors are right, over all comparisons together.
FALSE_ALARM = 0.1
# What is judged, and the difference in standard deviations of the return that is worth a word.
WORTH_A_WORD = {"mean": 0.1, "std": 0.1, f"cvar:{RISK_LEVEL:g}": 0.2}
# What is shown: a quantile jumps where returns have atoms, and no standard error says so.
COMPARED = (*WORTH_A_WORD, f"quantile:{RISK_LEVEL:g}")
# Standard deviations of the return: a mean that nobody knows better than this is not checked.
BLIND = 0.2
# The mean that all others can be held to, but not where the log itself refutes it: joint standard
# errors from one that rests on no class of functions and is known better.
FITTED_Q, REFUTED = "fitted Q evaluation", 2.0
TINY = 1e-300
# The opinion that is right where the estimate is biased and weights are not.
ROBUST = "doubly robust"
LEVEL = 0.9
# A tail in which it has fewer returns, by its effective size, has no interval that could be right.
FEWEST_BEYOND = 5.0


def _beyond(asked: str) -> float:
    """The share of returns beyond a quantile, or in the tail of CVaR; 1 for other measures."""
    found = measure(asked)
    if found.family.name not in ("quantile", "cvar"):
        return 1.0
    level = found.parameters[0]
    return min(level, 1 - level)


def figures_held() -> tuple[str, ...]:
    """Measures that an opinion may have figures of: what is compared, and what tables show."""
    shown = (*usual_measures(), *further_measures())
    return tuple(dict.fromkeys([*COMPARED, *(one.text for one in shown)]))


class Figure(NamedTuple):
    """A number and its standard error; None where that is not known."""

    value: float
    standard_error: float | None


@dataclass(frozen=True)
class Opinion:
    """What one estimator says of one return.

    estimator: its name. coordinate: the name of the return.
    figures: by measure, such as "cvar:0.1"; those of `figures_held` that it has.
    effective_size: how many returns, all alike, would say as much.
    cannot_see: why it is no judge; None where it is one.
    remarks: what is to be known about it.
    sampled: whether it is a weighted sample, which knows a tail by the few returns in it.
    model_free: whether it rests on nothing that was fitted: whole episodes, logged propensities.
    """

    estimator: str
    coordinate: str
    figures: dict[str, Figure]
    effective_size: float
    cannot_see: str | None = None
    remarks: tuple[str, ...] = ()
    sampled: bool = False
    model_free: bool = False

    @property
    def sees(self) -> bool:
        """Whether it may judge."""
        return self.cannot_see is None

    def as_plain(self) -> dict[str, Any]:
        """As files hold it."""
        return {
            "estimator": self.estimator,
            "coordinate": self.coordinate,
            "figures": {name: figure._asdict() for name, figure in self.figures.items()},
            "effective_size": self.effective_size,
            "cannot_see": self.cannot_see,
            "remarks": list(self.remarks),
            "sampled": self.sampled,
            "model_free": self.model_free,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """From the content of a file."""
        figures = {name: Figure(**figure) for name, figure in plain["figures"].items()}
        return cls(**{**plain, "figures": figures, "remarks": tuple(plain["remarks"])})


@dataclass(frozen=True)
class Disagreement:
    """An opinion that chance does not explain.

    apart: opinion minus estimate, in standard deviations of the return.
    errors: the same in standard errors.
    """

    opinion: Opinion
    asked: str
    apart: float
    errors: float


@dataclass(frozen=True)
class Check:
    """A figure of the estimate beside the doubly robust one, which does not share its bias.

    low, high: the interval of the doubly robust one. errors: how many standard errors it is away.
    """

    asked: str
    estimate: Figure
    robust: Figure
    low: float
    high: float
    errors: float

    def as_plain(self) -> dict[str, Any]:
        """As machines read it."""
        value, error = self.robust
        return {
            "estimate": self.estimate.value,
            "doubly_robust": value,
            "standard_error": error,
            "low": self.low,
            "high": self.high,
            "standard_errors_apart": self.errors,
        }


@dataclass(frozen=True)
class SecondOpinions:
    """An estimate beside what other estimators say.

    own: the estimate itself, one for each return, with "std" among its figures.
    opinions: of every other estimator and return. Fitted Q evaluation cannot see where a model-free
        opinion refutes it (`refuting`) and agrees with the estimate.

    Example: `SecondOpinions(own, opinions).disagreements`.
    """

    own: tuple[Opinion, ...]
    opinions: tuple[Opinion, ...]

    def __post_init__(self) -> None:
        mine = {own.coordinate: own for own in self.own}
        heard = tuple(_heard(one, mine.get(one.coordinate), self.opinions) for one in self.opinions)
        object.__setattr__(self, "opinions", heard)

    @cached_property
    def disagreements(self) -> tuple[Disagreement, ...]:
        """Those beyond `FALSE_ALARM`, by Bonferroni over all comparisons, and worth a word."""
        from scipy.stats import t as student

        pairs = [
            (own, opinion, asked)
            for own in self.own
            for opinion in self.opinions
            for asked in WORTH_A_WORD
            if opinion.sees and opinion.coordinate == own.coordinate
            if asked in own.figures and asked in opinion.figures
        ]
        found = []
        for own, opinion, asked in pairs:
            mine, theirs = own.figures[asked].value, opinion.figures[asked].value
            errors = (theirs - mine) / max(
                _joint_error(own, opinion, asked), 1e-12 * abs(mine), TINY
            )
            # The wider of both laws: one that is far too narrow must not make all others far.
            spread = max(own.figures["std"].value, opinion.figures.get("std", Figure(0, None))[0])
            apart = (theirs - mine) / max(spread, TINY)
            freedom = max(opinion.effective_size - 1, 1.0)
            limit = student.ppf(1 - FALSE_ALARM / (2 * len(pairs)), freedom)
            if abs(errors) > limit and abs(apart) > WORTH_A_WORD[asked]:
                found.append(Disagreement(opinion, asked, float(apart), float(errors)))
        return tuple(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user should know, with all figures."""
        several, lines = len(self.own) > 1, []
        for own in self.own:
            name = f"{own.coordinate}: " if several else ""
            found = [d for d in self.disagreements if d.opinion.coordinate == own.coordinate]
            if found:
                each = "; ".join(self._in_words(own, one) for one in found)
                lines.append(
                    f"{name}second opinions disagree beyond chance ({each}): one of them, or the "
                    "estimate, is wrong; see all of them before you rely on it"
                )
            elif name in self.blind:
                lines.append(
                    f"{name}no second opinion can judge the estimate: none knows the mean to "
                    f"within {BLIND:g} standard deviations of the return"
                )
        return tuple(lines)

    @property
    def blind(self) -> tuple[str, ...]:
        """How lines begin of returns whose mean nobody knows well enough to say anything."""
        several = len(self.own) > 1
        disputed = {found.opinion.coordinate for found in self.disagreements}
        return tuple(
            f"{own.coordinate}: " if several else ""
            for own in self.own
            if own.coordinate not in disputed and self._blind(own)
        )

    def robust(self, coordinate: str) -> Opinion | None:
        """What doubly robust estimation says of a return, though it may not see."""
        found = [o for o in self.opinions if (o.estimator, o.coordinate) == (ROBUST, coordinate)]
        return found[0] if found else None

    def checks(self, coordinate: str, level: float = LEVEL) -> dict[str, Check]:
        """By measure, the estimate beside the doubly robust one; none where that cannot see.

        Example: `result.second_opinions.checks("reward")["cvar:0.1"].errors`.
        """
        from scipy.stats import t as student

        theirs = self.robust(coordinate)
        mine = [own for own in self.own if own.coordinate == coordinate]
        if theirs is None or not theirs.sees or not mine:
            return {}
        wide = student.ppf(0.5 + level / 2, max(theirs.effective_size - 1, 1.0))
        found = {}
        for asked, (value, error) in theirs.figures.items():
            if error is None or asked not in mine[0].figures:
                continue
            if _beyond(asked) * theirs.effective_size < FEWEST_BEYOND:
                continue
            low, high = value - wide * error, value + wide * error
            if measure(asked).probability:
                low, high = np.clip([low, high], 0.0, 1.0)
            own = mine[0].figures[asked]
            joint = max(_joint_error(mine[0], theirs, asked), 1e-12 * abs(own.value), TINY)
            errors = float((value - own.value) / joint)
            figure = Figure(value, error)
            found[asked] = Check(asked, own, figure, float(low), float(high), errors)
        return found

    def alarm_in_words(self, coordinate: str) -> str:
        """Whether the estimate is where the doubly robust one is, and what that cannot see."""
        theirs, found = self.robust(coordinate), self.checks(coordinate)
        if theirs is None:
            return "no doubly robust estimate: the estimate itself was not held against any"
        if not found:
            return f"no doubly robust estimate: {theirs.cannot_see}"
        judged = [found[asked] for asked in WORTH_A_WORD if asked in found and asked != "std"]
        apart = " and ".join(
            f"{measure(one.asked).label} {_written(one.robust)}, {abs(one.errors):.1f} standard"
            " errors from the estimate"
            for one in judged
        )
        return "; ".join(
            [
                f"doubly robust, {apart}",
                f"it is worth {theirs.effective_size:,.0f} episodes, and sees no smaller bias than"
                " its own errors",
                *theirs.remarks,
            ]
        )

    def _in_words(self, own: Opinion, found: Disagreement) -> str:
        mine, theirs = own.figures[found.asked], found.opinion.figures[found.asked]
        return (
            f"{measure(found.asked).label} {_written(theirs)} by {found.opinion.estimator}, "
            f"{_written(mine)} by the estimate, {found.apart:+.2f} standard deviations apart"
        )

    def _blind(self, own: Opinion) -> bool:
        """Whether nobody knows the mean well enough to say anything."""
        means = [
            opinion.figures["mean"].standard_error or 0.0
            for opinion in self.opinions
            if opinion.sees and opinion.coordinate == own.coordinate and "mean" in opinion.figures
        ]
        return min(means, default=np.inf) > BLIND * own.figures["std"].value

    def rows(self, coordinate: str | None = None) -> list[tuple[str, ...]]:
        """A table: estimator, the figures with standard errors, effective size, reservations."""
        headings = [measure(asked).label for asked in COMPARED]
        table: list[tuple[str, ...]] = [("", *headings, "effective size", "")]
        several = len(self.own) > 1 and coordinate is None
        for one in (*self.own, *self.opinions):
            if coordinate is not None and one.coordinate != coordinate:
                continue
            name = f"{one.estimator}, {one.coordinate}" if several else one.estimator
            cells = [_written(one.figures[a]) if a in one.figures else "-" for a in COMPARED]
            size = f"{one.effective_size:,.0f}" if one.figures else "-"
            why = "" if one.sees else f"cannot see: {one.cannot_see}"
            table.append((name, *cells, size, why))
        return table

    def as_plain(self) -> dict[str, Any]:
        """As files hold it."""
        return {
            "own": [one.as_plain() for one in self.own],
            "opinions": [one.as_plain() for one in self.opinions],
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Sequence[Mapping[str, Any]]]) -> Self:
        """From the content of a file."""
        return cls(*(tuple(map(Opinion.from_plain, plain[name])) for name in ("own", "opinions")))

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in rows]
        return "\n".join(["SecondOpinions", *(f"  {line.rstrip()}" for line in lines)])

    def _repr_html_(self) -> str:
        from html import escape

        lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows()]
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><caption>Second opinions</caption>{body}</table>"


def refuting(opinion: Opinion, others: Sequence[Opinion]) -> Opinion | None:
    """A model-free opinion that knows the mean better, and says another beyond `REFUTED` errors."""
    value, error = opinion.figures["mean"]
    for other in others:
        if not (other.model_free and other.sees and other.coordinate == opinion.coordinate):
            continue
        said, better = other.figures["mean"]
        if error is None or better is None or better >= error:
            continue
        if abs(said - value) > REFUTED * np.hypot(better, error):
            return other
    return None


def _heard(opinion: Opinion, own: Opinion | None, opinions: Sequence[Opinion]) -> Opinion:
    """An opinion, or why it does not count beside this estimate."""
    if own is None or opinion.estimator != FITTED_Q or not opinion.sees:
        return opinion
    other = refuting(opinion, opinions)
    if other is None or "mean" not in own.figures:
        return opinion
    said = other.figures["mean"]
    if abs(said.value - own.figures["mean"].value) > REFUTED * _joint_error(own, other, "mean"):
        return opinion
    why = (
        f"its mean is refuted by {other.estimator}, {_written(said)}, which rests on no class of"
        " functions and agrees with the estimate"
    )
    return replace(opinion, cannot_see=why)


def _joint_error(own: Opinion, opinion: Opinion, asked: str) -> float:
    """The larger of both standard errors; of a sample also what the estimate's own law would have.

    A sample that lacks its tail does not know how much it lacks; the law it is held against does.
    """
    mine, theirs = (one.figures[asked].standard_error or 0.0 for one in (own, opinion))
    if not opinion.sampled:
        return max(mine, theirs)
    expected = mine * np.sqrt(own.effective_size / max(opinion.effective_size, 1.0))
    return max(mine, theirs, float(expected))


def _written(figure: Figure) -> str:
    """A number with its standard error, if that is known."""
    value, error = figure
    if error is None:
        return f"{value:.4g}"
    return f"{value:.4g} ({error:.2g})"
