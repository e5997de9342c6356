"""One place where a command runs, and where everything that may go wrong ends."""

import contextlib
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from fle.cli.commands import COMMANDS
from fle.cli.front import REPRODUCE, REPRODUCE_MODULE
from fle.cli.messages import (
    DONE,
    FAULT,
    NO_ESTIMATE,
    STOPPED,
    WAITING,
    WRONG_INPUT,
    Messages,
    Outcome,
    in_options,
    json_text,
    say,
)
from fle.cli.options import require
from fle.cli.parser import parse, resolve
from fle.data import memory_ceiling
from fle.errors import CoverageError, FLEError, ModelError, TrainingError
from fle.executors import JobsWaitingError
from fle.screen import one_line


def run_command_line(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    messages = Messages()
    for stream in (sys.stdout, sys.stderr):
        # A name that the terminal cannot show is no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        with messages.listening():
            code = _run(arguments, messages)
        sys.stdout.flush()
    except SystemExit as end:
        # --help and --version, which argparse prints itself.
        return end.code if isinstance(end.code, int) else DONE
    except KeyboardInterrupt:
        # The progress bar has left the cursor in its line.
        say("\nstopped; a run with --out goes on when the command is repeated")
        return STOPPED
    except BrokenPipeError:
        # Whoever read the output has seen enough; Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except Exception as error:
        return _failed(error, "--json" in arguments, messages)
    return code


def _run(arguments: Sequence[str], messages: Messages) -> int:
    given = parse(arguments)
    if given.command == REPRODUCE:
        return int(importlib.import_module(REPRODUCE_MODULE).run(given))
    command = next(command for command in COMMANDS if command.name == given.command)
    options = resolve(command, given)
    require(options, command.options)
    run = getattr(importlib.import_module(command.module), command.name)
    as_json = getattr(options, "json", False)
    messages.answers = None if as_json else sys.stdout
    # The policy may print, and stdout is for the answer alone.
    ceiling = memory_ceiling(getattr(options, "memory", None))
    with contextlib.redirect_stdout(sys.stderr), ceiling:
        try:
            outcome: Outcome = run(options, messages)
        except JobsWaitingError as waiting:
            outcome = Outcome((str(waiting),), {"waiting": str(waiting)}, WAITING)
    if as_json:
        document = {"command": command.name, **outcome.document}
        document |= {"warnings": messages.warnings, "exit_code": outcome.code}
        print(json_text(document, indent=None if outcome.one_line else 2))
    else:
        for line in outcome.lines:
            print(line)
    return outcome.code


def _failed(error: Exception, as_json: bool, messages: Messages) -> int:
    code = _code_of(error)
    if os.environ.get("FLE_TRACEBACK"):
        traceback.print_exception(error)
    text = in_options(one_line(_text_of(error)))
    say(f"error: {text}")
    if as_json:
        said: dict[str, Any] = {"error": text, "kind": type(error).__name__}
        print(json_text({**said, "warnings": messages.warnings, "exit_code": code}))
    return code


def _code_of(error: Exception) -> int:
    if isinstance(error, CoverageError | TrainingError | ModelError):
        return NO_ESTIMATE
    return WRONG_INPUT if isinstance(error, FLEError | OSError) else FAULT


def _text_of(error: Exception) -> str:
    if isinstance(error, FLEError):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, OSError):
        return str(error)
    hint = "" if os.environ.get("FLE_TRACEBACK") else "; FLE_TRACEBACK=1 shows where"
    return (
        f"this is a fault in fle, please report it with the command: {type(error).__name__}:"
        f" {error}{hint}"
    )
