"""`fle check` and `fle prepare`: what is in the data, what is wrong with it, and it made ready."""

import argparse
import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from fle.cli import UsageError
from fle.cli.commands import CHECK, COLUMNS
from fle.cli.entry import as_toml
from fle.cli.inputs import inspect_data, named_policy, prepare_data
from fle.cli.messages import (
    DONE,
    NO_ESTIMATE,
    WRONG_INPUT,
    Messages,
    Outcome,
    in_options,
    say,
    short,
)
from fle.data import Dataset
from fle.data.episodes import first_rows_in_blocks
from fle.data.passes import centre_and_scale, row_blocks
from fle.data.readers.inspection import Inspection
from fle.data.readers.prepared_log import read_contents
from fle.data.schema import WORDS
from fle.files import write_atomically
from fle.policies import tabulated
from fle.screen import aligned, labelled, one_line

MOST_ACTIONS, MOST_FEATURES, MOST_COLUMNS = 10, 20, 60
# What is written for `fle evaluate` are options that both commands have.
EVALUATE_KEYS = dataclasses.replace(CHECK, name="evaluate")


def check(options: argparse.Namespace, messages: Messages) -> Outcome:
    """Read the data, tell all that is wrong with it and, if there is a policy, ask it."""
    policies = [] if options.policy is None else [options.policy]
    found = inspect_data(options, policies)
    document: dict[str, Any] = {"columns": [dataclasses.asdict(column) for column in found.columns]}
    columns = _column_lines(found)
    if options.write is not None:
        write_mapping(Path(options.write), options, found)
        columns += [f"mapping: {options.write}"]
    data = found.data
    if data is None:
        faults = [in_options(one_line(fault)) for fault in found.faults]
        for fault in faults:
            say(f"error: {fault}")
        problems = f"{len(faults)} problem{'s' if len(faults) > 1 else ''}, above"
        document |= {"error": faults[0], "problems": faults}
        return Outcome((*columns, problems), document, WRONG_INPUT)
    for warning in data.warnings:
        messages.warn(warning)
    rows = [("data", " ".join(options.data)), *_rows(data)]
    document |= {"data": describe(data), "notes": list(data.notes)}
    enough = True
    if options.policy is not None:
        policy = named_policy(options.policy, data, options)
        target = tabulated(policy, data, draws=options.action_draws)
        rows.append(("policy", f"{options.policy}: {target.in_words()}"))
        document["policy"] = {"name": options.policy, "coverage": target.as_plain()}
        for remark in target.remarks:
            messages.warn(remark)
        enough = target.enough
    notes = [f"note: {note}" for note in data.notes]
    lines = [*labelled(rows), *columns, *notes, _verdict(messages, enough)]
    return Outcome(tuple(lines), document, DONE if enough else NO_ESTIMATE)


def _column_lines(found: Inspection) -> list[str]:
    """A line for each column, suspicious ones first."""
    if not found.columns:
        return []
    shown = found.columns[:MOST_COLUMNS]
    rows = [("column", "part", "kind", "range", "missing", "look at")]
    rows += [
        (
            column.name,
            column.role or "not used",
            column.kind,
            column.span,
            str(column.missing or ""),
            in_options("; ".join(column.suspicions)),
        )
        for column in shown
    ]
    more = len(found.columns) - len(shown)
    return ["", *aligned(rows, left=6), *([f"and {more:,} more columns"] if more else []), ""]


def write_mapping(path: Path, options: argparse.Namespace, found: Inspection) -> None:
    """The options with the columns that were found, as a file for --config; never written over."""
    if path.exists():
        raise UsageError(f"--write: {path} is there already; name a new file, or delete it")
    resolved = argparse.Namespace(**vars(options))
    single = {option.name: option.form == "value" for option in COLUMNS}
    for role, names in found.roles.items():
        if role in single and not getattr(resolved, role):
            setattr(resolved, role, names[0] if single[role] else list(names))
    unused = [column.name for column in found.columns if not column.role]
    lines = [
        *as_toml(EVALUATE_KEYS, resolved, one_line(shlex.quote(str(path)))).splitlines(),
        *(
            f'# {role} = "..."  # not found'
            for role, words in WORDS.items()
            if words.required and role not in found.roles
        ),
        *([f"# not used: {', '.join(one_line(name) for name in unused)}"] if unused else []),
    ]
    write_atomically(path, ("\n".join(lines) + "\n").encode("utf-8"))


def describe(data: Dataset) -> dict[str, Any]:
    """The data in figures."""
    lengths = episode_lengths(data)
    return {
        "rows": len(data),
        "source_rows": data.number_of_source_rows,
        "episodes": data.number_of_episodes,
        "episode_lengths": None
        if lengths is None
        else {
            "least": lengths.min(),
            "median": float(np.median(lengths)),
            "most": lengths.max(),
        },
        "observations": _observations(data),
        "actions": _actions(data),
        "rewards": {
            name: {
                "least": values.min(),
                "most": values.max(),
                "mean": values.mean(),
                "std": _spread(values),
            }
            for name, values in zip(data.reward_names, data.rewards.T, strict=True)
        },
        "terminated": int(data.terminations.sum()),
        "truncated": int(data.truncations.sum()),
        "starts": None if data.initial_observations is None else len(data.initial_observations),
        "propensities": _propensities(data),
        "probabilities": list(data.probability_names),
        "fingerprint": data.fingerprint,
    }


def _spread(values: np.ndarray) -> float:
    """Standard deviation, of some rows at a time."""
    scale = float(centre_and_scale(values[:, None])[1][0])
    return scale if values.min() < values.max() else 0.0


def episode_lengths(data: Dataset) -> np.ndarray | None:
    """How many rows each episode has; None if episodes are unknown."""
    if data.episodes is None:
        return None
    if data.prepared:
        return np.diff(first_rows_in_blocks(data.episodes), append=len(data))
    return np.unique(data.episodes, return_counts=True)[1]


def _rows(data: Dataset) -> list[tuple[str, str]]:
    rows = [("rows", _row_words(data)), ("episodes", _episode_words(data))]
    observations, actions = _observations(data), _actions(data)
    if "states" in observations:
        rows.append(("observations", f"{observations['states']:,} discrete states"))
    else:
        constant = len(observations["constant"])
        also = f", {constant} of them constant" if constant else ""
        names = data.observation_names
        more = ", ..." if len(names) > MOST_FEATURES else ""
        named = f": {', '.join(names[:MOST_FEATURES])}{more}" if names else ""
        text = f"{observations['features']} features{also}, {_range(observations)}{named}"
        rows.append(("observations", text))
    if "shares" in actions:
        listed = enumerate(actions["shares"][:MOST_ACTIONS])
        shares = ", ".join(f"{data.label(code)}: {share:.1%}" for code, share in listed)
        more = ", ..." if len(actions["shares"]) > MOST_ACTIONS else ""
        rows.append(("actions", f"{actions['discrete']} discrete ({shares}{more})"))
    else:
        rows.append(("actions", f"{actions['continuous']} continuous, {_range(actions)}"))
    for name, values in zip(data.reward_names, data.rewards.T, strict=True):
        label = name if name == "reward" else f"reward {name}"
        text = f"{short(values.min())} to {short(values.max())}, mean {short(values.mean())}"
        rows.append((label, f"{text}, std {short(_spread(values))}"))
    ended = f"{data.terminations.sum():,} terminated, {data.truncations.sum():,} truncated"
    rows.append(("ends", ended))
    if data.propensities is not None:
        rows.append(("propensities", data.propensities_in_words()))
    if data.probability_names:
        rows.append(("policies", f"probabilities of {', '.join(data.probability_names)}"))
    return rows


def _row_words(data: Dataset) -> str:
    dropped = data.number_of_source_rows - len(data)
    return f"{len(data):,}" + (f" ({dropped:,} more were dropped)" if dropped else "")


def _episode_words(data: Dataset) -> str:
    lengths = episode_lengths(data)
    if lengths is None:
        return "unknown: the rows are separate transitions"
    if lengths.min() == lengths.max():
        return f"{len(lengths):,} of {lengths.min():,} step{'s' if lengths.min() > 1 else ''}"
    middle = f"median {np.median(lengths):,.0f}"
    return f"{len(lengths):,} of {lengths.min():,} to {lengths.max():,} steps, {middle}"


def _observations(data: Dataset) -> dict[str, Any]:
    if data.number_of_observations is not None:
        return {"states": data.number_of_observations}
    values = data.observations
    least, most = values.min(axis=0), values.max(axis=0)
    return {
        "features": values.shape[1],
        "constant": np.flatnonzero(least == most).tolist(),
        "least": values.min(),
        "most": values.max(),
    }


def _actions(data: Dataset) -> dict[str, Any]:
    if data.number_of_actions is not None:
        counts = np.zeros(data.number_of_actions, np.int64)
        for block in row_blocks(len(data)):
            counts += np.bincount(data.actions[block], minlength=data.number_of_actions)
        shares = (counts / len(data)).tolist()
        labels = list(data.action_labels)
        return {"discrete": data.number_of_actions, "labels": labels, "shares": shares}
    return {
        "continuous": data.action_dim,
        "least": data.actions.min(),
        "most": data.actions.max(),
    }


def _propensities(data: Dataset) -> dict[str, Any] | None:
    if data.propensities is None:
        return None
    of = "every action" if data.propensities.ndim == 2 else "logged actions"
    return {"of": of, "least": data.propensities.min(), "most": data.propensities.max()}


def _range(figures: dict[str, Any]) -> str:
    return f"from {short(figures['least'])} to {short(figures['most'])}"


def _verdict(messages: Messages, enough: bool) -> str:
    if not enough:
        return "not enough: an estimate for this policy would be extrapolation"
    count = len(messages.warnings)
    if count == 0:
        return "nothing to complain about"
    return f"usable, with {count} reservation{'s' if count > 1 else ''}, above"


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
    shown = f"{size / 2**30:.3g} GiB" if size >= 2**30 else f"{size / 2**20:.3g} MiB"
    rows = [("log", repr(data)), ("folder", f"{folder}, {shown}")]
    for field, columns in contents.statistics.items():
        if field == "actions" and data.number_of_actions is not None:
            # Codes have no mean.
            continue
        for number, figures in enumerate(columns):
            name = names[field][number] if names[field] else field.removesuffix("s")
            rows.append((name, "{:.4g} ± {:.4g}, from {:.4g} to {:.4g}".format(*figures)))
    rows += [("note", note) for note in data.notes]
    document = {"folder": str(folder), "bytes": size, "data": describe(data)}
    statistics = {
        field: [one._asdict() for one in columns] for field, columns in contents.statistics.items()
    }
    return Outcome(tuple(labelled(rows)), document | {"statistics": statistics})
