"""Files and frames become a `Dataset`; one format a file."""

from fle.data.readers.read import read

__all__ = ["read"]
