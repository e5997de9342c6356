"""From the text of an option to its value."""

import argparse
import tomllib
from collections.abc import Callable
from typing import Any

from fle.errors import SettingsError
from fle.returns import Measure, measure


def discount(text: str) -> float:
    """A number from 0 to 1."""
    value = number(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text}")
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


def seconds(text: str) -> float:
    """A positive number."""
    value = number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected a positive number of seconds, got {text}")
    return value


def risk_measure(text: str) -> Measure:
    """A measure of the register, such as cvar:0.1."""
    try:
        return measure(text)
    except SettingsError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


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
    except tomllib.TOMLDecodeError:
        parsed = {}
    value = parsed["value"] if list(parsed) == ["value"] else written
    return name.strip(), value
