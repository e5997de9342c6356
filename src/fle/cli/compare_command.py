"""`fle compare`: a `Comparison` of several policies on the same data, shown."""

import argparse
import dataclasses
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fle.cli.check_command import describe
from fle.cli.commands import COMPARE
from fle.cli.entry import CONFIG
from fle.cli.evaluate_command import (
    COMPARISON,
    COMPARISON_PAGE,
    DATA,
    Context,
    draw_comparison,
    results,
    settings_kept,
    spoken_command,
    write_run_files,
)
from fle.cli.inputs import (
    LONGEST_NAME,
    NamedPolicies,
    asked_executor,
    listed_policies,
    planner,
    read_data_to_fit,
)
from fle.cli.messages import (
    DONE,
    NO_ESTIMATE,
    Messages,
    Outcome,
    cell,
    data_words,
    in_options,
    interval_cell,
    json_text,
    number_text,
    style_of,
)
from fle.data import Dataset
from fle.files import make_directory, write_atomically
from fle.recipe import FIRST_LOOK
from fle.returns.intervals import MEANING
from fle.returns.measures import usual_measures
from fle.returns.risk import percentage
from fle.screen import aligned, labelled, one_line

# What a comparison writes beside its runs.
OWN = (CONFIG, DATA, COMPARISON, COMPARISON_PAGE)

if TYPE_CHECKING:
    from fle.fitting import Comparison, Evaluation, Plan
    from fle.fitting.contest import Refusal
    from fle.returns.intervals import Difference


def compare(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Look at all policies, fit those that may be the best, and rank what they give."""
    texts = listed_policies(options.policy, options.data)
    executor = asked_executor(options)
    data = read_data_to_fit(options, list(texts.values()))
    from fle.fitting.comparison import Comparison, ranking_weights
    from fle.fitting.contest import Contest
    from fle.fitting.jobs import Handling
    from fle.screen import default_progress

    contest = Contest.of(
        planner(data, options),
        NamedPolicies(texts, data, options),
        by=options.by,
        weights=ranking_weights(options.weights, data),
        budget=options.budget,
        anyway=options.anyway,
        progress=default_progress(),
    )
    contenders = list(contest.contenders)
    folders = {} if options.out is None else run_folders(Path(options.out), contenders)
    # Once for all of them: the data are the same.
    out = Path(options.out) if folders else None
    with settings_kept(out, COMPARE, options, data, list(folders.values())):
        how = Handling(executor, options.anyway, None, folders or None, options.resume)
        comparison = Comparison.of_contest(contest, options.weights, how)
    names = [name for name, _ in comparison.ranking(options.by)]
    lines = _lines(comparison, names, data, options)
    document = _document(comparison, names, data, options)
    if options.out is not None:
        lines += _write(comparison, document, folders, options, messages)
    return Outcome(tuple(lines), document, NO_ESTIMATE if comparison.refused else DONE)


def run_folders(out: Path, names: list[str]) -> dict[str, Path]:
    """A run directory for each policy, inside --out."""
    folders: dict[str, Path] = {}
    next_number: dict[str, int] = {}
    taken: set[str] = set()
    for name in names:
        # Never hidden, never the folder itself or the one above, and a name that fits.
        stem = re.sub(r"[^\w.-]+", "_", Path(name).name)[:LONGEST_NAME].lstrip(".")
        stem = unique = stem if stem not in ("", *OWN) else f"{stem or 'policy'}_"
        number = next_number.get(stem, 2)
        while unique in taken:
            unique, number = f"{stem}-{number}", number + 1
        next_number[stem] = number
        taken.add(unique)
        folders[name] = out / unique
    return folders


def _write(
    comparison: "Comparison",
    document: dict[str, Any],
    folders: dict[str, Path],
    options: argparse.Namespace,
    messages: Messages,
) -> list[str]:
    """The files of every run and those of the comparison; where the pages are."""
    out = Path(options.out)
    command = spoken_command(COMPARE, options)
    for name, evaluation in comparison.evaluations.items():
        context = Context(f"Return of {Path(name).name}", command, tuple(messages.warnings))
        write_run_files(folders[name], evaluation, context, messages, None, options.sign_key)
    make_directory(out)
    write_atomically(out / COMPARISON, (json_text(document) + "\n").encode("utf-8"))
    page = draw_comparison(comparison, out / COMPARISON_PAGE, options.by, messages)
    if page is None:
        return []
    return [f"report: {page}", f"reports of each: {out}/*/report.html"]


def _document(
    comparison: "Comparison", names: list[str], data: Dataset, options: argparse.Namespace
) -> dict[str, Any]:
    ranked = [(name, comparison.evaluations[name]) for name in names]
    values = dict(comparison.ranking(options.by))
    return {
        "data": describe(data),
        "problem": dataclasses.asdict(comparison.problem),
        "quick": comparison.quick,
        "by": options.by.text,
        "weights": options.weights,
        "ranking": [
            {
                "policy": name,
                options.by.text: values[name],
                "coverage": _coverage(found),
                **results(found, options),
            }
            for name, found in ranked
        ],
        "budget": options.budget,
        "unfitted": [
            {"policy": name, "outcome": found.outcome, **dataclasses.asdict(found)}
            for name, found in comparison.unfitted.items()
        ],
        "looks": [] if comparison.contest is None else comparison.contest.in_words(),
        "refused": [
            {"policy": name, "coverage": _coverage(found), "verdict": _verdict(found)}
            for name, found in comparison.refused.items()
        ],
        "pairing": comparison.pairing(),
        "differences": [
            {**dataclasses.asdict(pair), "interval": _interval(comparison, pair)}
            for pair in comparison.differences(names)
        ],
        "dominance": [
            dataclasses.asdict(one)
            for order in (1, 2)
            for one in comparison.dominance(order, names)
        ],
        "run": options.out,
    }


def _coverage(found: "Plan | Refusal | Evaluation") -> dict[str, Any] | None:
    covered: Any = getattr(found, "target", found)
    covered = covered.coverage
    return None if covered is None else covered.as_plain()


def _verdict(found: "Plan | Refusal | Evaluation") -> dict[str, Any] | None:
    """None where nothing was fitted."""
    verdict = getattr(found, "verdict", None)
    return None if verdict is None else verdict.as_plain()


def _interval(comparison: "Comparison", pair: "Difference") -> dict[str, Any] | None:
    """Of the mean difference, for machines."""
    if comparison.level is None:
        return None
    found = comparison.interval(pair.first, pair.second)
    return {"level": found.level, "low": found.low, "high": found.high}


def _lines(
    comparison: "Comparison", names: list[str], data: Dataset, options: argparse.Namespace
) -> list[str]:
    order = "highest" if options.by.direction > 0 else "lowest"
    heading = [
        ("data", data_words(options.data, data)),
        ("problem", comparison.problem.in_words()),
        ("ranked by", f"{options.by.label}, {order} first{one_line(comparison.summed())}"),
    ]
    lines = labelled([*heading, ("quick", in_options(FIRST_LOOK))] if comparison.quick else heading)
    if names:
        lines += ["", *_ranking_lines(comparison, names, options)]
    if len(names) > 1:
        lines += ["", *_pair_lines(comparison, names)]
        lines += ["", *(one_line(text) for text in comparison.dominance_in_words(names)), ""]
        lines += [
            f"pairs: {comparison.pairing()}",
            f"note: {MEANING}",
            f"note: {comparison.caution()}",
        ]
    if comparison.unfitted:
        lines += ["", *_unfitted_lines(comparison, names, options)]
    for name, refused in comparison.refused.items():
        lines.append(f"no estimate for {name}: {one_line(str(refused.withheld))}")
    if comparison.refused:
        lines.append("log data closer to it, or see the extrapolation with --anyway")
    return lines


def _ranking_lines(
    comparison: "Comparison", names: list[str], options: argparse.Namespace
) -> list[str]:
    shown = list(dict.fromkeys([*usual_measures(), options.by]))
    style = style_of(comparison.returns[names[0]])
    level, by = comparison.level, options.by
    beside = [] if level is None else [f"{percentage(level)} interval of {by.heading}"]
    rows = [["", "policy", "verdict", *(m.heading for m in shown), *beside]]
    for place, name in enumerate(names, 1):
        law = comparison.returns[name]
        verdict = comparison.evaluations[name].verdict.level
        ends = [interval_cell(by, law, style)] if beside else []
        cells = [cell(m, law.measure(m), style) for m in shown]
        rows.append([str(place), name, verdict, *cells, *ends])
    return aligned(rows, left=3)


def _unfitted_lines(
    comparison: "Comparison", names: list[str], options: argparse.Namespace
) -> list[str]:
    """Those without a full fit, by their last look, the best of them first."""
    style = style_of(comparison.returns[names[0]]) if names else None
    rows = [["", "policy", "outcome", f"{options.by.heading} by look", "behind", "by", "margin"]]
    for place, (name, found) in enumerate(comparison.unfitted.items(), len(names) + 1):
        numbers = [found.value, found.lead, found.margin]
        value, lead, margin = (
            f"{v:.4g}" if style is None or options.by.probability else number_text(v, style)
            for v in numbers
        )
        rows.append([str(place), name, found.outcome, value, found.rival, lead, margin])
    said = comparison.contest.in_words() if comparison.contest is not None else []
    return [*aligned(rows, left=3), "", *(f"note: {one_line(text)}" for text in said)]


def _pair_lines(comparison: "Comparison", names: list[str]) -> list[str]:
    style = style_of(comparison.returns[names[0]])
    level = comparison.level
    heading = [] if level is None else [f"{percentage(level)} interval"]
    rows = [["first", "second", "mean difference", *heading, "5% to 95%", "first wins", "ties"]]
    for pair in comparison.differences(names):
        mean, low, high = (number_text(v, style) for v in (pair.mean, pair.low, pair.high))
        chances = [f"{pair.beats:.1%}", f"{pair.ties:.1%}"]
        ends = comparison.interval(pair.first, pair.second).ends if heading else ()
        between = [" to ".join(number_text(end, style) for end in ends)] if ends else []
        rows.append([pair.first, pair.second, mean, *between, f"{low} to {high}", *chances])
    return aligned(rows, left=2)
