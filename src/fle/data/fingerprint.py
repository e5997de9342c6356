"""A short text that two data sets share only if they hold the same numbers."""

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from fle.data.attributes import OTHER_ARRAYS, ROW_FIELDS

if TYPE_CHECKING:
    from fle.data.dataset import Dataset

IDENTIFYING = (
    "number_of_observations",
    "number_of_actions",
    "reward_names",
    "probability_names",
    "number_of_source_rows",
    "whole_episodes",
)


def fingerprint(data: "Dataset") -> str:
    """SHA-256 over every array and every name, in hexadecimal; warnings do not count."""
    digest = hashlib.sha256()
    for name in IDENTIFYING:
        digest.update(f"{name}={getattr(data, name)!r};".encode())
    for name in (*ROW_FIELDS, *OTHER_ARRAYS):
        array = getattr(data, name)
        if array is None:
            digest.update(f"{name}=None;".encode())
            continue
        # Little-endian, so that every machine says the same.
        plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        digest.update(f"{name}={plain.dtype.str}{plain.shape};".encode())
        digest.update(plain.data)
    return digest.hexdigest()
