"""`fle gate`: whether a policy keeps what is required of it, as an exit code."""

import argparse
from pathlib import Path

from fle.cli.inputs import planned, read_data_to_fit
from fle.cli.messages import DONE, NOT_MET, UNDECIDED, Messages, Outcome
from fle.cli.text_tables import data_words
from fle.files import write_atomically
from fle.plain_text import aligned, labelled, one_line

CODES = {"met": DONE, "not met": NOT_MET, "undecided": UNDECIDED}


def gate(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Decide by confidence bounds; the exit code is the answer."""
    data = read_data_to_fit(options, [options.policy])
    from fle.fitting.comparison import checked_weights
    from fle.returns.requirements import BEHAVIOUR
    from fle.trust.gate import Gate, bounds

    if options.weights is not None:
        checked_weights(options.weights, data)
    options.interval = bounds(options.level, options.replicates).level
    found = Gate.of(
        lambda name: planned(name, data, options),
        options.policy,
        BEHAVIOUR,
        options.require,
        options.level,
        options.weights,
    )
    if options.junit is not None:
        write_atomically(Path(options.junit), found.as_junit())
    rows = [[one.answer, str(one.requirement), one.why] for one in found.decisions]
    lines = [
        *labelled([("data", data_words(options.data, data)), ("policy", options.policy)]),
        "",
        *aligned([["answer", "required", f"estimate and bound at {options.level:g}"], *rows]),
        "",
        f"gate: {found.answer}",
    ]
    if found.evaluation is not None:
        lines.insert(0, f"verdict: {one_line(found.evaluation.verdict.in_words())}")
    document = {"policy": options.policy, **found.as_plain(), "junit": options.junit}
    return Outcome(tuple(lines), document, CODES[found.answer], one_line=True)
