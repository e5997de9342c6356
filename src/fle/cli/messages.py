"""What a command says: its outcome, for people and for machines, and warnings on stderr."""

import json
import math
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

import numpy as np

from fle.errors import FLEWarning
from fle.screen import one_line, show

DONE, NO_ESTIMATE, WRONG_INPUT, FAULT, STOPPED = 0, 1, 2, 3, 130
# Of a gate.
NOT_MET, UNDECIDED = 4, 5
# Of jobs that others are to run first.
WAITING = 6
# Of interest to programmers of the packages below, not to the user of a command.
UNSHOWN = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    ImportWarning,
    ResourceWarning,
)
# Arguments of the Python functions that are options here.
ARGUMENTS = (
    "observation",
    "next_observation",
    "action",
    "reward",
    "episode",
    "step",
    "terminated",
    "truncated",
    "weight",
    "propensity",
    "probability",
    "number_of_actions",
    "action_labels",
    "category",
    "missing",
    "elapsed",
    "input",
    "output",
    "timeout",
    "memory",
    "memory_ceiling",
    "allow_code",
    "action_draws",
    "draws",
    "gamma",
    "horizon",
    "model",
    "recipe",
    "stages",
    "rows",
    "seed",
    "weights",
    "quick",
    "interval",
    "anyway",
    "out",
    "resume",
    "sign_key",
)
# Options whose name is not the argument's.
OTHER_NAMES = {
    "timeout": "policy_timeout",
    "memory": "policy_memory",
    "memory_ceiling": "memory",
    "input": "policy_input",
    "output": "policy_output",
    "draws": "action_draws",
}


class Messages:
    """Every warning of a command, shown once when it comes and kept for the report."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.answers: TextIO | None = None

    def answer(self, lines: Iterable[str]) -> None:
        """Print what is known already; nothing where one document is the answer."""
        if self.answers is not None:
            print(*lines, sep="\n", file=self.answers, flush=True)

    def warn(self, text: str) -> None:
        """Show a warning, unless it was shown before."""
        line = one_line(text)
        # A comparison says first whose it is.
        if not any(shown == line or shown.endswith(f": {line}") for shown in self.warnings):
            self.warnings.append(line)
            say(f"warning: {in_options(line)}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over Python's warnings, whose format shows source lines."""

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            own = issubclass(category, FLEWarning)
            self.warn(str(message) if own else f"{category.__name__}: {message}")

        with warnings.catch_warnings():
            warnings.resetwarnings()
            for category in UNSHOWN:
                warnings.simplefilter("ignore", category)
            warnings.simplefilter("always", FLEWarning)
            warnings.showwarning = show
            yield


def say(line: str) -> None:
    """One line to stderr."""
    show("")
    print(line, file=sys.stderr, flush=True)


def in_options(text: str) -> str:
    """What the Python functions call `reward=...` is the option --reward here."""
    names = "|".join(ARGUMENTS)
    # `anyway=True` is a switch, which has no value.
    text = re.sub(rf"(?<![\w.-])({names})=True\b", lambda found: _option(found[1]), text)
    text = re.sub(
        rf"(?<![\w.-])({names})=(?=[\w'\".{{\[])", lambda found: _option(found[1]) + " ", text
    )
    return re.sub(rf"`({names})`|^({names})(?=: )", lambda m: _option(m[1] or m[2]), text)


def _option(argument: str) -> str:
    return "--" + OTHER_NAMES.get(argument, argument).replace("_", "-")


@dataclass(frozen=True)
class Outcome:
    """The lines to print, or the document to print instead of them, and the exit code.

    one_line: whether the document is one line, as logs of pipelines want it.
    """

    lines: tuple[str, ...]
    document: dict[str, Any] = field(default_factory=dict)
    code: int = DONE
    one_line: bool = False


def json_text(document: dict[str, Any], *, indent: int | None = 2) -> str:
    """Strict JSON: what is no number is null."""
    return json.dumps(_plain(document), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)
