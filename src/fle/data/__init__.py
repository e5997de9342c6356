"""Logged data becomes a checked `Dataset`."""

from fle.data.cache import read_cache, write_cache
from fle.data.dataset import Dataset
from fle.data.readers import read

__all__ = ["Dataset", "read", "read_cache", "write_cache"]
