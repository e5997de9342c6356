"""The command line: a thin layer that reads files, calls the rest of the package, and prints."""

from fle.cli.front import main

__all__ = ["main"]
