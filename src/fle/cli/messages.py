"""What is said besides the answer: warnings and errors, as short lines on stderr."""

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fle.errors import FLEWarning, SettingsError

# Of interest to programmers of the packages below, not to the user of a command.
UNSHOWN = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    ImportWarning,
    ResourceWarning,
)
ROLES = (
    "next_observation|observation|action|reward|episode|step|terminated|truncated|weight"
    "|probability|number_of_actions|out|resume|allow_code|timeout|input|output"
)
# Options whose name is not the argument's.
OTHER_NAMES = {"timeout": "policy_timeout", "input": "policy_input", "output": "policy_output"}


class UsageError(SettingsError):
    """The command line or its configuration says something that no command understands."""


class Messages:
    """Every warning of a command, shown once when it comes and kept for the report."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

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
    print(line, file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Text that cannot move the cursor: names in a file may hold anything."""
    line = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def in_options(text: str) -> str:
    """What the Python functions call `reward=...` is the option --reward here."""

    def option(match: re.Match[str]) -> str:
        name = OTHER_NAMES.get(match[1], match[1])
        return "--" + name.replace("_", "-") + (" " if match[2] else "")

    text = re.sub(rf"(?<![\w.-])({ROLES})(=)(?=[\w'\".{{])", option, text)
    return re.sub(rf"`({ROLES})()`", option, text)
