"""Errors and warnings; each says what was expected, what was given, and how to go on."""

import difflib
import re
from collections.abc import Iterable
from importlib import metadata


class FLEError(ValueError):
    """Something in the data, the policy or the settings cannot be used as it is."""


class DataError(FLEError):
    """The logged data is not what it should be."""


class PolicyError(FLEError):
    """The target policy answered with something that is not an action or a probability."""


class SettingsError(FLEError):
    """A setting is outside its range, or two settings contradict each other."""


class CoverageError(FLEError):
    """The data shows too little of what the target policy does for a headline number."""


class ModelError(FLEError):
    """A model was asked for what it cannot give."""


class TrainingError(FLEError):
    """Training stopped because its loss is no longer a number."""


class FLEWarning(UserWarning):
    """The result stands, with the reservation that the message states."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that was probably meant."""
    close = difflib.get_close_matches(name, list(known), 1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def install(extra: str) -> str:
    """The command that brings the packages of an extra, wherever fle itself was installed from."""
    try:
        needed = metadata.requires("fle") or []
    except metadata.PackageNotFoundError:
        needed = []
    own = [line for line in needed if re.search(rf"extra == ['\"]{extra}['\"]", line)]
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in own]
    return f"pip install {' '.join(names)}" if names else f"pip install 'fle[{extra}]'"
