"""`fle demo`: the main job on bundled data, where the truth is known."""

import argparse
import dataclasses

from fle.cli.commands import EVALUATE, FIT
from fle.cli.configuration import resolve
from fle.cli.evaluate import Truth, carry_out
from fle.cli.messages import Messages
from fle.cli.outcome import Outcome


def run(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Evaluate the example's policy as `fle evaluate` would, and set the truth beside it."""
    from fle import examples

    example = examples.load(options.example or examples.NAMES[0])
    given = {
        "data": [str(example.data_path)],
        "policy": str(example.policy_path),
        "gamma": example.gamma,
        "horizon": example.horizon,
        "out": options.out,
        **{option.name: getattr(options, option.name) for option in FIT},
    }
    said = {name: value for name, value in given.items() if value is not None}
    told = resolve(EVALUATE, argparse.Namespace(**said))
    outcome = carry_out(told, messages, Truth(example.name, example.truth))
    return dataclasses.replace(outcome, lines=(example.description, "", *outcome.lines))
