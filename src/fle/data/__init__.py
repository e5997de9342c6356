"""Logged data becomes a checked `Dataset`."""

from fle.data.dataset import Dataset
from fle.data.passes import memory_ceiling
from fle.data.readers import open_log, prepare, read, read_cache, write_cache

__all__ = [
    "Dataset",
    "memory_ceiling",
    "open_log",
    "prepare",
    "read",
    "read_cache",
    "write_cache",
]
