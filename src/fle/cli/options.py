"""Options, stated once for the command line, configuration files and completion; their values."""

import argparse
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from fle.cli import UsageError
from fle.errors import SettingsError, nearest
from fle.returns import Measure, measure
from fle.returns.measures import Requirement

# Said of what is not wanted.
NONE = "none"
Form = Literal["value", "list", "files", "switch", "table"]


@dataclass(frozen=True)
class Option:
    """One setting.

    name: as in a configuration file; on the command line it is --name, with dashes.
    form: "value" is given once, "list" as often as one likes, "files" are the arguments without a
        flag, "switch" takes no value, "table" takes NAME=VALUE as often as one likes.
    kind: from text to a value, or an ArgumentTypeError.
    typed: what reaches beyond the run because of it, so that no file can say it: a stranger's file
        could. Empty for all others.
    """

    name: str
    help: str
    form: Form = "value"
    kind: Callable[[str], Any] = str
    metavar: str | None = None
    default: Any = None
    choices: tuple[str, ...] = ()
    required: bool = False
    typed: str = ""

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        if self.form == "files":
            return self.metavar or self.name.upper()
        return "--" + self.name.replace("_", "-")

    def add_to(self, parser: Any) -> None:
        """Make a parser know it. Absent options stay absent, so that a file can fill them in."""
        shown = self.help
        if self.choices:
            shown += f": {', '.join(self.choices)}"
        if self.default is not None:
            shown += f" (default: {self.default})"
        # argparse takes % for a format.
        settings: dict[str, Any] = {"help": shown.replace("%", "%%"), "default": argparse.SUPPRESS}
        if self.form == "files":
            parser.add_argument(self.name, nargs="*", metavar=self.flag, **settings)
        elif self.form == "switch":
            parser.add_argument(self.flag, dest=self.name, action="store_true", **settings)
        else:
            action = "store" if self.form == "value" else "append"
            settings |= {"type": self.kind, "metavar": self.metavar or self.name.upper()}
            if self.choices:
                settings["choices"] = self.choices
            parser.add_argument(self.flag, dest=self.name, action=action, **settings)

    def from_toml(self, value: Any, source: str) -> Any:
        """The value that a configuration file gives, or a UsageError that names the key."""
        place = f"{source}: {self.name}"
        if self.typed:
            raise UsageError(
                f"{place}: got {value!r}, but {self.typed} is not for a file to say; remove the"
                f" line, and type {self.flag} on the command line if you trust it"
            )
        if self.form == "table":
            if not isinstance(value, dict):
                raise UsageError(f"{place}: expected a table [{self.name}], got {value!r}")
            return value
        if self.form == "switch":
            if not isinstance(value, bool):
                raise UsageError(f"{place}: expected true or false, got {value!r}")
            return value
        if self.form in ("list", "files"):
            items = value if isinstance(value, list) else [value]
            return [self._converted(item, place) for item in items]
        return self._converted(value, place)

    def _converted(self, value: Any, place: str) -> Any:
        if isinstance(value, list):
            value = ",".join(str(item) for item in value)
        if isinstance(value, bool | dict) or (self.kind is str and not isinstance(value, str)):
            raise UsageError(f"{place}: expected {self._expected()}, got {value!r}")
        try:
            converted = self.kind(str(value))
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise UsageError(f"{place}: {error}") from error
        if self.choices and converted not in self.choices:
            hint = nearest(str(converted), self.choices)
            raise UsageError(f"{place}: expected {self._expected()}, got {value!r}{hint}")
        return converted

    def _expected(self) -> str:
        return f"one of {', '.join(self.choices)}" if self.choices else "text"


def require(options: argparse.Namespace, known: Iterable[Option]) -> None:
    """Refuse a command line that leaves out what the command needs."""
    for option in known:
        if option.required and getattr(options, option.name) in (None, []):
            raise UsageError(f"{option.flag} is missing: {option.help}")


def discount(text: str) -> float:
    """A number from 0 to 1."""
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text}")
    return value


def interval_level(text: str) -> float | str:
    """A number between 0 and 1, or none."""
    if text.lower() == NONE:
        return NONE
    value = number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(
            f"expected a level above 0 and below 1, or {NONE}, got {text}"
        )
    return value


def bound_level(text: str) -> float:
    """A number between 1/2 and 1: a bound that is wrong more often than right decides nothing."""
    value = number(text)
    if not 0.5 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a level above 0.5 and below 1, got {text}")
    return value


def number(text: str) -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number, got {text!r}")
    return value


def share(text: str) -> float:
    """A number of at least 0, such as half a device."""
    value = number(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"expected a number of at least 0, got {text}")
    return value


def seconds(text: str) -> float:
    """A positive number."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text}")
    return value


def size(text: str) -> int:
    """A number of bytes, or of K, M, G or T of them."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    value = int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ")) if found else 0
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a size such as 512M or 4G, got {text!r}")
    return value


def risk_measure(text: str) -> Measure:
    """A measure of the register, such as cvar:0.1."""
    try:
        return measure(text)
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def requirement(text: str) -> Requirement:
    """A bound on a measure, such as cvar:0.1 >= 12."""
    try:
        return Requirement.of(text)
    except SettingsError as error:
        said = str(error).removeprefix("require: ").removeprefix("measure: ")
        raise argparse.ArgumentTypeError(said) from error


def whole(least: int) -> Callable[[str], int]:
    """A whole number, at least `least`."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, got {text!r}"
            )
        return value

    return convert


def weights(text: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [number(part) for part in text.split(",")]
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; write numbers such as 1,0.5") from error


def name_and_value(text: str) -> tuple[str, Any]:
    """NAME=VALUE, where the value is written as in a TOML file; what is not, is text."""
    name, equals, written = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {written}")
    except (ValueError, RecursionError):
        parsed = {}
    value = parsed["value"] if list(parsed) == ["value"] else written
    return name.strip(), value
