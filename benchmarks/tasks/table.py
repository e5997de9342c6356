"""The table of all runs asked for, in Markdown, and what each set shows in a few figures."""

from collections.abc import Callable
from statistics import median
from typing import Any

Run = dict[str, Any]
# The bars apply to covered tasks with at least so many rows.
ROWS_OF_BARS = 100_000
# An event is compared where the log holds at least so many.
LEAST_LOGGED = 50
# (what, figure, bar of the median, bar of the worst)
BARS: tuple[tuple[str, str, float | None, float | None], ...] = (
    ("W1/std", "w1", 0.04, 0.12),
    ("mean error/std", "mean_error", None, None),
    ("fitted-Q mean error/std", "fqe_mean_error", None, None),
    ("the same on features, as a second opinion", "second_mean_error", None, None),
    ("CVaR 10% error/std", "cvar_10_error", 0.05, 0.2),
    ("CVaR 1% error/std", "cvar_1_error", None, None),
    ("factor of the worst event", "factor", None, 1.3),
)
HEADINGS = (
    "task",
    "set",
    "seed",
    "rows",
    "W1/std [floor]",
    "mean",
    "std ratio",
    "CVaR 10%",
    "CVaR 1%",
    "worst event: estimate / truth (logged)",
    "fitted-Q mean (on features)",
    "processor seconds",
    "verdict",
)


def worst(figures: list[float], neutral: float = 0.0) -> float:
    """Of several coordinates, the one farthest from right."""
    return max(figures, key=lambda figure: abs(figure - neutral))


def factor(run: Run) -> float | None:
    """How many times too large or too small the chance of the worst event is; None if unknown."""
    if not run["events"]:
        return None
    event = run["events"][0]
    if event["logged"] < LEAST_LOGGED or event["truth"] == 0:
        return None
    if event["estimate"] == 0:
        return float("inf")
    ratio = event["estimate"] / event["truth"]
    return max(ratio, 1 / ratio)


def figure_of(run: Run, name: str) -> float | None:
    """One number of a run, the larger the worse; None where it was not measured."""
    special: dict[str, Callable[[Run], float | None]] = {"factor": factor}
    if name in special:
        return special[name](run)
    if name not in run:
        return None
    return abs(worst(run[name])) if isinstance(run[name], list) else run[name]


def markdown(runs: list[Run], skipped: list[str], about: str) -> str:
    """The whole table, every run in a line of its own, then each set in short."""
    lines = ["# Tasks to be right on", "", about, ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(_cells(run)) + " |" for run in runs]
    lines += ["", *(f"Not run: {reason}." for reason in skipped), ""]
    for name in ("development", "validation"):
        lines += _summary(name, [run for run in runs if run["set"] == name])
    return "\n".join(lines).rstrip() + "\n"


def _cells(run: Run) -> list[str]:
    first = [run["task"] + ("" if run["covered"] else " (not covered)"), run["set"]]
    first += [str(run["seed"]), f"{run['rows']:,}"]
    if "failed" in run:
        return [*first, f"failed: {run['failed']}", *("" for _ in HEADINGS[5:])]
    errors = [f"{worst(run[name]):+.3f}" for name in ("cvar_10_error", "cvar_1_error")]
    fitted_q = f"{worst(run['fqe_mean_error']):+.3f} " if "fqe_mean_error" in run else ""
    if "second_mean_error" in run:
        fitted_q += f"({worst(run['second_mean_error']):+.3f})"
    return [
        *first,
        f"{run['w1']:.3f} [{run['floor']:.3f}]",
        f"{worst(run['mean_error']):+.3f}",
        f"{worst(run['std_ratio'], 1.0):.2f}",
        *errors,
        "; ".join(
            f"{event['text']}: {event['estimate']:.4f} / {event['truth']:.4f} ({event['logged']})"
            for event in run["events"]
        ),
        fitted_q,
        f"{run['processor_seconds']:.0f}",
        run["verdict"],
    ]


def _summary(name: str, runs: list[Run]) -> list[str]:
    failed = [run["task"] for run in runs if "failed" in run]
    covered = [run for run in runs if run["covered"] and "failed" not in run]
    if not runs:
        return []
    counted = [run for run in covered if run["rows"] >= ROWS_OF_BARS]
    lines = [f"## {name}: covered tasks", ""]
    lines += [
        f"{len(counted)} runs with at least {ROWS_OF_BARS:,} rows, to which the bars apply, and "
        f"{len(covered)} with any number. Errors without their sign; of vectors, the worst "
        "coordinate.",
        *([f"Failed, and in no figure: {', '.join(failed)}."] if failed else []),
        "",
        "| | median (bar) | worst (bar) | median, any rows | worst, any rows |",
        "|---|---|---|---|---|",
    ]
    for text, figure, middle, most in BARS:
        cells = []
        for chosen, bars in ((counted, (middle, most)), (covered, (None, None))):
            found = [(figure_of(run, figure), run["task"]) for run in chosen]
            known = [(value, task) for value, task in found if value is not None]
            values = [value for value, _ in known]
            cells += [
                _judged(median(values), bars[0]) if values else "",
                f"{_judged(max(values), bars[1])}, {max(known)[1]}" if values else "",
            ]
        lines.append(f"| {text} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def _judged(value: float, bar: float | None) -> str:
    if bar is None:
        return f"{value:.3f}"
    return f"{value:.3f} ({bar:g}: {'met' if value <= bar else 'missed'})"
