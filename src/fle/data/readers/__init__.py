"""Files and frames become a `Dataset`; one kind of source a file."""

from fle.data.readers.cache import read_cache, write_cache
from fle.data.readers.reading import read

__all__ = ["read", "read_cache", "write_cache"]
