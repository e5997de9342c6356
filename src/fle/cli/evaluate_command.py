"""`fle evaluate`: what one policy would earn, as a plan carried out."""

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.cli.check_command import describe
from fle.cli.commands import EVALUATE
from fle.cli.inputs import asked_executor, planned, read_data_to_fit
from fle.cli.messages import (
    DONE,
    NO_ESTIMATE,
    Messages,
    Outcome,
    data_words,
    in_options,
    opinions_table,
    returns_document,
    risk_table,
)
from fle.cli.run_files import Context, settings_kept, spoken_command, write_run_files
from fle.recipe import FIRST_LOOK
from fle.returns import ReturnDistribution, distances_to_truth
from fle.screen import labelled, one_line

if TYPE_CHECKING:
    from fle.fitting import Evaluation, Plan

WAY_OUT = "log data closer to the policy, or see the extrapolation with --anyway"


@dataclasses.dataclass(frozen=True, eq=False)
class Truth:
    """Draws (n, d) of the true return, for the example of this name."""

    example: str
    draws: np.ndarray


def evaluate(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Evaluate the policy that the options name."""
    return carry_out(options, messages, None)


def carry_out(options: argparse.Namespace, messages: Messages, truth: Truth | None) -> Outcome:
    """Make the plan, and carry it out unless there can be no number, or none is wanted."""
    executor = asked_executor(options)
    data = read_data_to_fit(options, [options.policy])
    if options.weights is not None:
        from fle.fitting.comparison import checked_weights

        checked_weights(options.weights, data)
    plan = planned(options.policy, data, options)
    document: dict[str, Any] = {
        "data": describe(data),
        "policy": {"name": options.policy, "coverage": plan.target.as_plain()},
        "problem": dataclasses.asdict(plan.problem),
    }
    refused = plan.withheld is not None and not options.anyway
    if options.plan:
        document["plan"] = plan.as_plain()
        return Outcome(tuple(labelled(plan.rows())), document, NO_ESTIMATE if refused else DONE)
    if refused:
        why = f"no estimate for {options.policy}: {plan.withheld}"
        return Outcome((why, WAY_OUT), {**document, "returns": None}, NO_ESTIMATE)
    plan.cost.require_memory()
    out = None if options.out is None else Path(options.out)
    from fle.fitting.jobs import Handling, carried_out

    with settings_kept(out, EVALUATE, options, data, [] if out is None else [out]):
        how = Handling(executor, options.anyway, None, out, options.resume)
        evaluation = carried_out(plan, how)
    document["verdict"] = evaluation.verdict.as_plain()
    if evaluation.withheld is not None:
        if out is not None:
            from fle.fitting.runs import seal_run

            # With what the command line added to it.
            seal_run(out, options.sign_key)
        lines = [*evaluation.verdict.for_terminal(), f"no estimate for {options.policy}", WAY_OUT]
        return Outcome(tuple(lines), {**document, "returns": None}, NO_ESTIMATE)
    return _shown(evaluation, plan, document, options, messages, truth)


def _shown(
    evaluation: "Evaluation",
    plan: "Plan",
    document: dict[str, Any],
    options: argparse.Namespace,
    messages: Messages,
    truth: Truth | None,
) -> Outcome:
    """The risks, and the files that are written after a fit."""
    true = None if truth is None else true_returns(truth, evaluation)
    # Before the report, so that it repeats what is said of thin tails.
    table = risk_table(evaluation, options.measure, options.weights, true)
    document = document | results(evaluation, options)
    distances, distance_lines = _distances(evaluation, true)
    report = None
    if options.out is not None:
        name = Path(options.policy).name
        context = Context(
            f"Return of {name}" if truth is None else f"Demo: {truth.example}",
            spoken_command(EVALUATE, options),
            tuple(messages.warnings),
            None if truth is None else truth.example,
        )
        report = write_run_files(
            Path(options.out), evaluation, context, messages, true, options.sign_key
        )
    document |= distances
    document |= {"run": options.out, "report": None if report is None else str(report)}
    heading = [
        ("data", data_words(options.data, plan.data)),
        ("policy", f"{options.policy}: {plan.target.in_words()}"),
        ("problem", f"{plan.problem.in_words()}; model {evaluation.model.name}"),
    ]
    if evaluation.quick:
        heading.append(("quick", in_options(FIRST_LOOK)))
    lines = [
        *evaluation.verdict.for_terminal(),
        "",
        *labelled(heading),
        "",
        *table,
        *distance_lines,
        "",
    ]
    if evaluation.second_opinions is not None:
        lines += [*opinions_table(evaluation), ""]
    if evaluation.calibration is not None:
        lines.append(f"calibration: {one_line(evaluation.calibration.in_words())}")
    if evaluation.logged.remark is not None:
        lines.append(f"logged: {evaluation.logged.remark}")
    if evaluation.intervals is not None:
        lines.append(f"intervals: {evaluation.intervals.in_words()}")
    lines += [f"note: {note}" for note in evaluation.notes]
    if report is not None:
        lines.append(f"report: {report}")
    elif options.out is None:
        lines.append("for a report, and a run that can go on: --out run/")
    return Outcome(tuple(lines), document)


def true_returns(truth: Truth, evaluation: "Evaluation") -> ReturnDistribution:
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
    return {
        **returns_document(evaluation, extra, options.weights),
        "notes": list(evaluation.notes),
        "model": str(evaluation.model),
        "recipe": dataclasses.asdict(evaluation.recipe),
        "quick": evaluation.quick,
        "seed": evaluation.provenance.seed,
        "stages": len(evaluation.records),
        "seconds": sum(record.seconds for record in evaluation.records),
    }
