"""`fle report`: the report of a finished run, drawn again."""

import argparse
import dataclasses
from pathlib import Path

from fle.cli.evaluate import Truth, true_law
from fle.cli.messages import Messages, UsageError
from fle.cli.outcome import WRONG_INPUT, Outcome
from fle.cli.run_files import REPORT, Context, draw_report, read_context


def run(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Load the run and write the page."""
    if len(options.run) > 1:
        raise UsageError(f"RUN: expected one run directory, got {len(options.run)}")
    from fle.fitting import load

    folder = Path(options.run[0])
    evaluation = load(folder)
    context = read_context(folder)
    if options.title is not None:
        context = context or Context("", "", ())
        context = dataclasses.replace(context, title=options.title)
    truth = None
    if context is not None and context.example is not None:
        from fle import examples

        example = examples.load(context.example)
        truth = true_law(Truth(example.name, example.truth), evaluation)
    out = Path(options.out) if options.out else folder / REPORT
    path = draw_report(evaluation, out, context, messages, truth)
    if path is None:
        return Outcome((), {"report": None}, WRONG_INPUT)
    return Outcome((f"report: {path}",), {"report": str(path)})
