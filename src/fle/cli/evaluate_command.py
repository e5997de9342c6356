"""`fle evaluate`: a plan, carried out; and what the command line adds to a run directory."""

import argparse
import dataclasses
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fle.cli.check_command import describe
from fle.cli.commands import EVALUATE, Command
from fle.cli.entry import CONFIG, as_toml, as_words
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
from fle.data import Dataset, write_cache
from fle.errors import install
from fle.executors import Executor
from fle.files import make_directory, read_json, remove_leftovers, write_atomically, write_json
from fle.manifests import MANIFEST, ManifestError, require_form
from fle.returns import ReturnDistribution, distances_to_truth
from fle.screen import html_lines, labelled, one_line

if TYPE_CHECKING:
    from fle.fitting import Comparison, Evaluation, Plan
    from fle.fitting.plans import First
    from fle.returns import Measure, ReturnDistribution

DATA, CONTEXT, REPORT = "data.arrow", "context.json", "report.html"
COMPARISON, COMPARISON_PAGE = "compare.json", "comparison.html"
DRAWING = ("altair", "vl_convert", "jinja2")
WAY_OUT = "log data closer to the policy, or see the extrapolation with --anyway"


@dataclasses.dataclass(frozen=True)
class Context:
    """What a report shows that the evaluation does not know.

    example: the bundled example whose truth stands beside the estimate.
    """

    title: str
    command: str
    warnings: tuple[str, ...]
    example: str | None = None

    def as_plain(self) -> dict[str, Any]:
        """For a JSON file."""
        return dataclasses.asdict(self)


def write_config(folder: Path, command: Command, options: argparse.Namespace) -> None:
    """The resolved options, for --config."""
    make_directory(folder)
    write_atomically(folder / CONFIG, as_toml(command, options).encode("utf-8"))


@contextmanager
def settings_kept(
    folder: Path | None,
    command: Command,
    options: argparse.Namespace,
    data: Dataset,
    runs: Sequence[Path],
) -> Iterator[None]:
    """Around the fits of some runs: their options and a copy of their data are in the folder.

    They are written first, so that a run that is killed is all there. Where something was begun
    already, which may have other settings, the fit has to accept it first.
    """
    if folder is None:
        yield
        return
    from fle.fitting.runs import RUN, require_key

    for run in runs:
        require_key(run, options.sign_key)
    # Of a command that was killed; what a run itself wrote is its own business.
    remove_leftovers(folder, "|".join(map(re.escape, (CONFIG, DATA, COMPARISON, COMPARISON_PAGE))))
    new = not any((run / RUN).exists() for run in runs)
    if not new:
        yield
    write_config(folder, command, options)
    # A prepared log is where it is already, and may be far larger than the run.
    if not (options.no_copy or data.prepared) and find_spec("pyarrow") is not None:
        write_cache(data, folder / DATA)
    if new:
        yield


def write_run_files(
    folder: Path,
    evaluation: "Evaluation",
    context: Context,
    messages: Messages,
    truth: "ReturnDistribution | None",
    sign_key: str | None,
) -> Path | None:
    """What is known after the fit; where the report is, if it could be drawn."""
    from fle.fitting.runs import seal_run

    write_json(folder / CONTEXT, context.as_plain())
    path = draw_report(evaluation, folder / REPORT, context, messages, truth)
    seal_run(folder, sign_key)
    return path


def draw_report(
    evaluation: "Evaluation",
    path: Path,
    context: Context | None,
    messages: Messages,
    truth: "ReturnDistribution | None",
) -> Path | None:
    """The report; tables alone where the packages that draw it are not installed."""
    if not _can_draw(messages):
        return write_tables(path, evaluation._repr_html_(), context.warnings if context else ())
    from fle.report import Extras, write_report

    if context is None:
        write_report(evaluation, path, truth=truth)
        return path
    extras = Extras(warnings=context.warnings)
    write_report(
        evaluation,
        path,
        truth=truth,
        title=context.title,
        command=context.command,
        extras=extras,
    )
    return path


def draw_comparison(
    comparison: "Comparison", path: Path, by: "Measure", messages: Messages
) -> Path | None:
    """The page of a comparison, on the same terms."""
    if not comparison.evaluations:
        return None
    if not _can_draw(messages):
        return write_tables(path, comparison._repr_html_(), ())
    comparison.report(path, by=by)
    return path


def _can_draw(messages: Messages) -> bool:
    missing = [name for name in DRAWING if find_spec(name) is None]
    if missing:
        messages.warn(
            f"the report has tables and no charts, as {', '.join(missing)} is missing;"
            f" {install('charts')}"
        )
    return not missing


def write_tables(path: Path, tables: str, warnings: Sequence[str]) -> Path:
    """The report without charts, which needs no other package."""
    said = html_lines("Warnings", [("warning", text) for text in warnings]) if warnings else ""
    page = f"<!doctype html><meta charset='utf-8'><title>fle</title>{said}{tables}\n"
    write_atomically(path, page.encode("utf-8"))
    return path


def read_context(folder: Path, listed: Collection[str]) -> Context | None:
    """What `write_run_files` wrote; None for a run that was made in Python.

    listed: the files that the manifest vouches for.
    """
    path = folder / CONTEXT
    if CONTEXT not in listed:
        if path.exists():
            raise ManifestError(
                f"{path} is not listed in {MANIFEST}: somebody added it, or a command was killed."
                " Delete it, or repeat the command"
            )
        return None
    plain = read_json(path)
    require_form(plain, Context, str(path))
    return Context(**{**plain, "warnings": tuple(plain["warnings"])})


def spoken_command(command: Command, options: argparse.Namespace) -> str:
    """The command line that gives the same again."""
    return shlex.join(as_words(command, options))


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
    if plan.interval is not None and evaluation.refits is None:
        # They follow.
        verdict = [line for line in verdict if "--interval 0.9" not in line]
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
    if opinions is not None and before is None:
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
    lines += [f"note: {note}" for note in evaluation.notes]
    if plan.interval is not None and evaluation.refits is None:
        lines.append(
            f"intervals follow, from {plan.interval.replicates} more fits, or are left out by"
            " --interval none"
        )
    return lines


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
