"""What stands between other people's files and the user: missing packages and torn bytes."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from fle.errors import DataError, FLEError


def optional_package(module: str, purpose: str) -> ModuleType:
    """A package of the extra `files`, imported now that it is needed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise DataError(
            f"{purpose} needs {module.split('.')[0]}, which is not installed;"
            " run: pip install 'fle[files]'"
        ) from error


@contextmanager
def reading(path: Path | str, kind: str) -> Iterator[None]:
    """Whatever a parser makes of bytes it does not understand becomes one kind of error."""
    try:
        yield
    except FLEError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; check the path") from error
    except PermissionError as error:
        raise DataError(f"{path}: may not be read; check its permissions") from error
    # A parser of damaged bytes may raise anything, so nothing narrower would do.
    except Exception as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"{path}: cannot be read as {kind} ({reason}). The file is torn, empty or of another"
            " format: copy or export it again"
        ) from error
