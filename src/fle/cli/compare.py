"""`fle compare`: several policies on the same data, ranked."""

import argparse
import dataclasses
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.cli.check import describe
from fle.cli.commands import COMPARE
from fle.cli.evaluate import problem_words, results
from fle.cli.fits import check_model, check_problem, check_weights, fit
from fle.cli.inputs import Target, coverage_document, coverage_words, read_data, read_target
from fle.cli.messages import Messages, UsageError, say
from fle.cli.outcome import DONE, NO_ESTIMATE, Outcome
from fle.cli.pairing import PAIRS, Difference, differences, paired_starts, returns_from
from fle.cli.run_files import (
    Context,
    settings_kept,
    spoken_command,
    write_config,
    write_run_files,
)
from fle.cli.tables import MINUS, aligned, cell, labelled, style_of
from fle.data import Dataset
from fle.policies import ActionTable
from fle.returns import Measure, ReturnDistribution, measure

if TYPE_CHECKING:
    from fle.fitting import Evaluation
    from fle.report.style import NumberStyle

SHOWN = tuple(measure(text) for text in ("mean", "std", "cvar:0.1", "quantile:0.05", "loss"))
CAUTION = "these are differences between fitted distributions; the error of the fits is not in them"


@dataclass(frozen=True, eq=False)
class Contender:
    """A policy that was evaluated, and the distribution it is ranked by."""

    target: Target
    evaluation: "Evaluation"
    law: ReturnDistribution


def run(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Check everything, evaluate each policy with the same settings and seed, and rank them."""
    check_problem(options)
    check_model(options)
    _check_policies(options.policy)
    data = read_data(options, options.policy)
    _require_weights(options, data)
    targets = [read_target(text, data, options, seed=options.seed) for text in options.policy]
    for target in targets:
        for remark in target.tabulated.remarks:
            messages.warn(f"{target.name}: {remark}")
    refused = [target for target in targets if not (target.enough or options.anyway)]
    folders = _folders(options)
    contenders = []
    for target in targets:
        if target in refused:
            continue
        if sys.stderr.isatty():
            say(f"evaluating {target.name}")
        folder = folders.get(target.name)
        with settings_kept(folder, COMPARE, options, data):
            evaluation = fit(data, target, options, folder)
        law = evaluation.returns
        if options.weights is not None:
            law = law.scalarize(options.weights)
        contenders.append(Contender(target, evaluation, law))
    by: Measure = options.by
    contenders.sort(key=lambda contender: -by.direction * contender.law.measure(by))
    pairs = _paired(contenders, data, options)
    for contender in contenders:
        _write(contender, options, folders, messages)
    document = _document(contenders, refused, pairs, data, options)
    if options.out is not None:
        from fle.cli.outcome import json_text
        from fle.files import write_atomically

        write_config(Path(options.out), COMPARE, options)
        write_atomically(
            Path(options.out) / "compare.json", (json_text(document) + "\n").encode("utf-8")
        )
    lines = _lines(contenders, refused, pairs, data, options)
    return Outcome(tuple(lines), document, NO_ESTIMATE if refused else DONE)


def _check_policies(names: list[str]) -> None:
    if len(names) < 2:
        raise UsageError("--policy: expected at least two policies, one --policy for each")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"--policy: {twice} is given twice; expected different policies")


def _require_weights(options: argparse.Namespace, data: Dataset) -> None:
    check_weights(options, data)
    if data.return_dim > 1 and options.weights is None:
        raise UsageError(
            f"a ranking needs one number, but there are {data.return_dim} rewards:"
            f" {', '.join(data.reward_names)}; give --weights, such as"
            f" {','.join(['1'] * data.return_dim)}"
        )


def _folders(options: argparse.Namespace) -> dict[str, Path]:
    """A run directory for each policy, inside --out."""
    if options.out is None:
        return {}
    folders: dict[str, Path] = {}
    for name in options.policy:
        stem = re.sub(r"[^\w.-]+", "_", Path(name).name)
        taken = [folder.name for folder in folders.values()]
        number = 2
        unique = stem
        while unique in taken:
            unique, number = f"{stem}-{number}", number + 1
        folders[name] = Path(options.out) / unique
    return folders


def _paired(
    contenders: list[Contender], data: Dataset, options: argparse.Namespace
) -> list[Difference]:
    starts = data.require_initial_observations()
    which = paired_starts(len(starts), options.seed)
    returns = []
    for contender in contenders:
        table = contender.target.initial
        there = ActionTable(table.actions[which], table.probabilities[which])
        # A stream for each policy: from the start on, the two of a pair have nothing in common.
        place = options.policy.index(contender.target.name)
        generator = np.random.default_rng([options.seed, 4, place])
        drawn = returns_from(contender.evaluation, there, starts[which], generator)
        weights = options.weights or [1.0] * drawn.shape[1]
        returns.append(drawn @ np.asarray(weights))
    return differences([contender.target.name for contender in contenders], returns)


def _write(
    contender: Contender,
    options: argparse.Namespace,
    folders: dict[str, Path],
    messages: Messages,
) -> None:
    target = contender.target
    folder = folders.get(target.name)
    if folder is None:
        return
    context = Context(
        f"Return of {Path(target.name).name}",
        spoken_command(COMPARE, options),
        tuple(messages.warnings),
    )
    write_run_files(folder, contender.evaluation, context, messages, None)


def _document(
    contenders: list[Contender],
    refused: list[Target],
    pairs: list[Difference],
    data: Dataset,
    options: argparse.Namespace,
) -> dict[str, Any]:
    return {
        "data": describe(data),
        "problem": {"gamma": options.gamma, "horizon": options.horizon},
        "by": options.by.text,
        "weights": options.weights,
        "ranking": [
            {
                "policy": contender.target.name,
                options.by.text: contender.law.measure(options.by),
                "coverage": coverage_document(contender.target),
                **results(contender.evaluation, options),
            }
            for contender in contenders
        ],
        "refused": [
            {"policy": target.name, "coverage": coverage_document(target)} for target in refused
        ],
        "pairing": _pairing_words(data),
        "differences": [dataclasses.asdict(pair) for pair in pairs],
        "run": options.out,
    }


def _lines(
    contenders: list[Contender],
    refused: list[Target],
    pairs: list[Difference],
    data: Dataset,
    options: argparse.Namespace,
) -> list[str]:
    order = "highest" if options.by.direction > 0 else "lowest"
    lines = labelled(
        [
            ("data", f"{' '.join(options.data)}: {len(data):,} rows"),
            ("problem", problem_words(options)),
            ("ranked by", f"{options.by.label}, {order} first"),
        ]
    )
    if contenders:
        shown = [*SHOWN, *(() if options.by in SHOWN else (options.by,))]
        style = style_of(contenders[0].law)
        rows = [["", "policy", *(m.heading for m in shown)]]
        for place, contender in enumerate(contenders, 1):
            cells = [cell(m, contender.law.measure(m), style) for m in shown]
            rows.append([str(place), contender.target.name, *cells])
        lines += ["", *aligned(rows, left=2)]
    if pairs:
        lines += ["", *_pair_lines(pairs, style_of(contenders[0].law))]
        lines += [f"pairs: {_pairing_words(data)}", f"note: {CAUTION}"]
    for target in refused:
        lines.append(f"no estimate for {target.name}: {coverage_words(target)}")
    if refused:
        lines.append("log data closer to it, or see the extrapolation with --anyway")
    if options.out is not None and contenders:
        lines.append(f"reports: {Path(options.out)}/*/report.html")
    return lines


def _pair_lines(pairs: list[Difference], style: "NumberStyle") -> list[str]:
    def text(value: float) -> str:
        return style.text(value).replace(MINUS, "-")

    rows = [["first", "second", "mean difference", "5% to 95%", "first wins", "ties"]]
    for pair in pairs:
        between = f"{text(pair.low)} to {text(pair.high)}"
        chances = [f"{pair.beats:.1%}", f"{pair.ties:.1%}"]
        rows.append([pair.first, pair.second, text(pair.mean), between, *chances])
    return aligned(rows, left=2)


def _pairing_words(data: Dataset) -> str:
    starts = len(data.require_initial_observations())
    return (
        f"{PAIRS:,} pairs of simulated episodes; both of a pair begin at the same one of the"
        f" {starts:,} logged starts and are independent from there on"
    )
