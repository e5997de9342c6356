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
from fle.executors import Executor
from fle.returns import ReturnDistribution, distances_to_truth
from fle.screen import labelled, one_line

if TYPE_CHECKING:
    from fle.fitting import Evaluation, Plan
    from fle.fitting.plans import First

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
    first: list[Evaluation] = []

    def answer(evaluation: "Evaluation") -> None:
        first.append(evaluation)
        messages.answer(_answer(evaluation, plan, options, truth))

    with settings_kept(out, EVALUATE, options, data, [] if out is None else [out]):
        evaluation = _carried_out(plan, options, executor, answer if messages.answers else None)
    document["verdict"] = evaluation.verdict.as_plain()
    told = _answer(evaluation, plan, options, truth, *first)
    if evaluation.withheld is not None:
        if out is not None:
            from fle.fitting.runs import seal_run

            # With what the command line added to it.
            seal_run(out, options.sign_key)
        return Outcome(tuple(told), {**document, "returns": None}, NO_ESTIMATE)
    document |= results(evaluation, options)
    true = None if truth is None else true_returns(truth, evaluation)
    document |= _distances(evaluation, true)[0]
    report = _report(evaluation, options, messages, truth)
    document |= {"run": options.out, "report": None if report is None else str(report)}
    if report is not None:
        told.append(f"report: {report}")
    elif options.out is None:
        told.append("for a report, and a run that can go on: --out run/")
    return Outcome(tuple(told), document)


def _carried_out(
    plan: "Plan",
    options: argparse.Namespace,
    executor: Executor | None,
    first: "First | None",
) -> "Evaluation":
    """By an executor, which gives all of it at the end, or here."""
    out = None if options.out is None else Path(options.out)
    if executor is None:
        return plan.carry_out(anyway=options.anyway, out=out, resume=options.resume, first=first)
    from fle.fitting.jobs import Handling, carried_out

    return carried_out(plan, Handling(executor, options.anyway, None, out, options.resume))


def _report(
    evaluation: "Evaluation", options: argparse.Namespace, messages: Messages, truth: Truth | None
) -> Path | None:
    """The files that are written after a fit, and where the page is."""
    if options.out is None:
        return None
    context = Context(
        f"Return of {Path(options.policy).name}" if truth is None else f"Demo: {truth.example}",
        spoken_command(EVALUATE, options),
        tuple(messages.warnings),
        None if truth is None else truth.example,
    )
    true = None if truth is None else true_returns(truth, evaluation)
    return write_run_files(Path(options.out), evaluation, context, messages, true, options.sign_key)


def _answer(
    evaluation: "Evaluation",
    plan: "Plan",
    options: argparse.Namespace,
    truth: Truth | None,
    before: "Evaluation | None" = None,
) -> list[str]:
    """The verdict and the risks; of what was shown before, without intervals, only what is new."""
    verdict = [in_options(line) for line in evaluation.verdict.for_terminal()]
    if before is not None:
        changed = evaluation.verdict.for_terminal() != before.verdict.for_terminal()
        verdict = ["", *verdict] if changed else []
    if evaluation.withheld is not None:
        known = before is not None and before.withheld is not None
        refusal = [] if known else [f"no estimate for {options.policy}", WAY_OUT]
        return [*verdict, *refusal]
    lines = [*verdict, ""]
    true = None if truth is None else true_returns(truth, evaluation)
    if before is not None and before.withheld is not None:
        # Of that one nothing else was shown.
        before = None
    if before is None:
        lines += [*labelled(_heading(evaluation, plan, options)), ""]
    lines += risk_table(evaluation, options.measure, options.weights, true)
    if before is None:
        lines += _distances(evaluation, true)[1]
    opinions = evaluation.second_opinions
    if opinions is not None:
        lines += ["", *opinions_table(evaluation)]
    lines.append("")
    if opinions is not None:
        several = len(evaluation.return_names) > 1
        for name in evaluation.return_names:
            whose = f" of {one_line(name)}" if several else ""
            lines.append(f"bias alarm{whose}: {one_line(opinions.alarm_in_words(name))}")
    if evaluation.intervals is not None:
        lines.append(f"intervals: {evaluation.intervals.in_words()}")
    if before is not None:
        return lines
    if evaluation.calibration is not None:
        lines.append(f"calibration: {one_line(evaluation.calibration.in_words())}")
    if evaluation.logged.remark is not None:
        lines.append(f"logged: {evaluation.logged.remark}")
    return lines + [f"note: {note}" for note in evaluation.notes]


def _heading(
    evaluation: "Evaluation", plan: "Plan", options: argparse.Namespace
) -> list[tuple[str, str]]:
    heading = [
        ("data", data_words(options.data, plan.data)),
        ("policy", f"{options.policy}: {plan.target.in_words()}"),
        ("problem", f"{plan.problem.in_words()}; model {evaluation.model.name}"),
    ]
    # What it left out is the first reason of the verdict.
    return (
        [*heading, ("quick", "a first look, which decides nothing")]
        if evaluation.quick
        else heading
    )


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
