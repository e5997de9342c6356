"""`fle prepare`: a log of any size as a folder that every other command takes as its data."""

import argparse
from pathlib import Path

from fle.cli.check_command import describe
from fle.cli.inputs import prepare_data
from fle.cli.messages import Messages, Outcome
from fle.data.readers.prepared_log import read_contents
from fle.plain_text import labelled


def prepare(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Read the source once, and say what is in it."""
    data = prepare_data(options)
    folder = Path(options.data[-1])
    contents = read_contents(folder)
    size = sum(entry.bytes for entry in contents.arrays.values())
    names = {
        "observations": data.observation_names,
        "actions": data.action_names,
        "rewards": data.reward_names,
    }
    rows = [("log", repr(data)), ("folder", f"{folder}, {size / 2**30:.3g} GiB")]
    for field, columns in contents.statistics.items():
        for number, figures in enumerate(columns):
            name = names[field][number] if names[field] else field.removesuffix("s")
            rows.append((name, "{:.4g} ± {:.4g}, from {:.4g} to {:.4g}".format(*figures)))
    rows += [("note", note) for note in data.notes]
    document = {"folder": str(folder), "bytes": size, "data": describe(data)}
    statistics = {
        field: [one._asdict() for one in columns] for field, columns in contents.statistics.items()
    }
    return Outcome(tuple(labelled(rows)), document | {"statistics": statistics})
