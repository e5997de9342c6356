"""`fle evaluate`: what one policy would earn."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.cli.check import describe
from fle.cli.commands import EVALUATE
from fle.cli.fits import check_model, check_problem, check_weights, fit
from fle.cli.inputs import Target, coverage_document, coverage_words, read_data, read_target
from fle.cli.messages import Messages, one_line
from fle.cli.outcome import NO_ESTIMATE, Outcome
from fle.cli.run_files import Context, settings_kept, spoken_command, write_run_files
from fle.cli.tables import labelled, returns_document, risk_table
from fle.data import Dataset
from fle.returns import ReturnDistribution, distances_to_truth

if TYPE_CHECKING:
    from fle.fitting import Evaluation


WAY_OUT = "log data closer to the policy, or see the extrapolation with --anyway"


@dataclass(frozen=True, eq=False)
class Truth:
    """Draws (n, d) of the true return, for the example of this name."""

    example: str
    draws: np.ndarray


def run(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Evaluate the policy that the options name."""
    return carry_out(options, messages, None)


def carry_out(options: argparse.Namespace, messages: Messages, truth: Truth | None) -> Outcome:
    """Check everything, fit, write the run directory, and show the risks."""
    check_problem(options)
    check_model(options)
    data = read_data(options, [options.policy])
    check_weights(options, data)
    target = read_target(options.policy, data, options, seed=options.seed)
    document: dict[str, Any] = {
        "data": describe(data),
        "policy": {"name": target.name, "coverage": coverage_document(target)},
        "problem": {"gamma": options.gamma, "horizon": options.horizon},
    }
    for remark in target.tabulated.remarks:
        messages.warn(remark)
    if not target.enough and not options.anyway:
        return Outcome(
            (f"no estimate for {target.name}: {coverage_words(target)}", WAY_OUT),
            {**document, "returns": None},
            NO_ESTIMATE,
        )
    out = None if options.out is None else Path(options.out)
    with settings_kept(out, EVALUATE, options, data):
        evaluation = fit(data, target, options, out)
    # Before the report, so that it repeats what is said of thin tails.
    law = None if truth is None else true_law(truth, evaluation)
    table = risk_table(evaluation, options.measure, options.weights, law)
    document |= results(evaluation, options)
    distances, distance_lines = _distances(evaluation, law)
    document |= distances
    report = None
    if out is not None:
        context = Context(
            f"Return of {Path(target.name).name}" if truth is None else f"Demo: {truth.example}",
            spoken_command(EVALUATE, options),
            tuple(messages.warnings),
            None if truth is None else truth.example,
        )
        report = write_run_files(out, evaluation, context, messages, law)
    document |= {"run": options.out, "report": None if report is None else str(report)}
    lines = [*_heading(data, target, evaluation, options), "", *table, *distance_lines, ""]
    lines += [f"note: {note}" for note in evaluation.notes]
    if report is not None:
        lines.append(f"report: {report}")
    elif out is None:
        lines.append("for a report, and a run that can go on: --out run/")
    return Outcome(tuple(lines), document)


def true_law(truth: Truth, evaluation: "Evaluation") -> ReturnDistribution:
    """The truth as a distribution, with the names of the estimate."""
    return ReturnDistribution.from_samples(truth.draws, evaluation.return_names)


def _distances(
    evaluation: "Evaluation", truth: ReturnDistribution | None
) -> tuple[dict[str, Any], list[str]]:
    """How far the estimate is from the truth, for machines and in words."""
    if truth is None:
        return {}, []
    found = distances_to_truth(evaluation.returns, truth)
    document = {c.name: {"w1_over_std": c.distance, "floor": c.floor.mean} for c in found}
    lines = [f"{one_line(c.name)}: {c.in_words()}" for c in found]
    return {"truth": document}, ["", *lines]


def results(evaluation: "Evaluation", options: argparse.Namespace) -> dict[str, Any]:
    """What was found, for machines."""
    extra = getattr(options, "measure", [])
    weights = getattr(options, "weights", None)
    return {
        **returns_document(evaluation, extra, weights),
        "notes": list(evaluation.notes),
        "model": str(evaluation.model),
        "seed": evaluation.provenance.seed,
        "stages": len(evaluation.records),
        "seconds": sum(record.seconds for record in evaluation.records),
    }


def problem_words(options: argparse.Namespace) -> str:
    """Which return is meant."""
    parts = []
    if options.horizon is not None:
        parts.append(f"return over {options.horizon} step{'s' if options.horizon > 1 else ''}")
    else:
        parts.append("discounted return")
    if options.gamma is not None:
        parts.append(f"gamma {options.gamma:g}")
    return ", ".join(parts)


def _heading(
    data: Dataset, target: Target, evaluation: "Evaluation", options: argparse.Namespace
) -> list[str]:
    episodes = "" if data.episodes is None else f", {data.number_of_episodes:,} episodes"
    return labelled(
        [
            ("data", f"{' '.join(options.data)}: {len(data):,} rows{episodes}"),
            ("policy", f"{target.name}: {coverage_words(target)}"),
            ("problem", f"{problem_words(options)}; model {evaluation.model.name}"),
        ]
    )
