"""Files and frames become a `Dataset`; one kind of source a file."""

from fle.data.readers.prepared_log import open_log, read_cache, write_cache
from fle.data.readers.preparing import prepare
from fle.data.readers.reading import read

__all__ = ["open_log", "prepare", "read", "read_cache", "write_cache"]
