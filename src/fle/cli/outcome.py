"""What a command ends with, as text for people and as a document for machines."""

import json
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DONE, NO_ESTIMATE, WRONG_INPUT, FAULT, STOPPED = 0, 1, 2, 3, 130


@dataclass(frozen=True)
class Outcome:
    """The lines to print, or the document to print instead of them, and the exit code."""

    lines: tuple[str, ...]
    document: dict[str, Any] = field(default_factory=dict)
    code: int = DONE


def json_text(document: dict[str, Any]) -> str:
    """Strict JSON: what is no number is null."""
    return json.dumps(_plain(document), indent=2, ensure_ascii=False, allow_nan=False)


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
