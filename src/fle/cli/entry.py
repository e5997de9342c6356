"""From what is typed, or said in a TOML file, to a command that runs and what may go wrong."""

import argparse
import contextlib
import importlib
import io
import json
import math
import os
import re
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fle.cli import (
    EXIT_CODES,
    REPRODUCE,
    REPRODUCE_MODULE,
    REPRODUCE_SUMMARY,
    Parser,
    UsageError,
    has_reproduce,
    top_parser,
)
from fle.cli.commands import COMMANDS, Command
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
from fle.cli.options import Option, require
from fle.data import memory_ceiling
from fle.errors import CoverageError, FLEError, ModelError, TrainingError, nearest
from fle.executors import JobsWaitingError
from fle.files import toml_content, without_secrets
from fle.screen import one_line

CONFIG = "run.toml"
# Said on the command line only.
UNWRITTEN = ("config", "json", "plan", "sign_key", "memory", "write")


def build_parser(arguments: Sequence[str]) -> Parser:
    """The parser; heavy parts of it only if the arguments ask for them."""
    parser, subparsers = top_parser()
    for command in COMMANDS:
        _add_command(subparsers, command)
    _add_reproduce(subparsers, arguments)
    return parser


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """What the command line says, and nothing that it leaves open."""
    parser = build_parser(arguments)
    known = subparsers_of(parser)
    given, unknown = parser.parse_known_args(_joined(arguments))
    if given.command is None:
        parser.error(f"a command is missing: {', '.join(known)}")
    if unknown:
        first = unknown[0]
        flags = [flag for action in known[given.command]._actions for flag in action.option_strings]
        if first.startswith("-"):
            hint = nearest(first.partition("=")[0], flags)
            known[given.command].error(f"unknown option {first}{hint}")
        known[given.command].error(
            f"unexpected argument {first!r}; files go together, before options"
        )
    return given


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parser of each command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _add_command(subparsers: Any, command: Command) -> None:
    parser = subparsers.add_parser(
        command.name,
        help=command.summary,
        usage=command.usage,
        description=command.summary[0].upper() + command.summary[1:] + ".",
        epilog=f"examples:\n{command.examples}\n\n{EXIT_CODES}",
    )
    for title, options in command.groups:
        group = parser.add_argument_group(title)
        for option in options:
            option.add_to(group)


def _add_reproduce(subparsers: Any, arguments: Sequence[str]) -> None:
    """The paper's experiments bring their own parser, which is slow to import."""
    if not has_reproduce():
        return
    if REPRODUCE in arguments[:1] or "completion" in arguments[:1]:
        importlib.import_module(REPRODUCE_MODULE).add_parser(subparsers)
    else:
        subparsers.add_parser(REPRODUCE, help=REPRODUCE_SUMMARY)


def _joined(arguments: Sequence[str]) -> list[str]:
    """`--weights -1,2` as `--weights=-1,2`, since argparse takes -1,2 for an option."""
    joined: list[str] = []
    for word in arguments:
        before = joined[-1] if joined else ""
        if re.match(r"-\.?\d", word) and before.startswith("--") and "=" not in before:
            joined[-1] = f"{before}={word}"
        else:
            joined.append(word)
    return joined


def resolve(command: Command, given: argparse.Namespace) -> argparse.Namespace:
    """Every option of a command: as given, else as in the file, else its default."""
    said = vars(given)
    config, earlier = said.get("config"), said.get("from")
    in_file = {} if config is None else read_config(Path(config), command)
    if config is None and earlier is not None and (Path(earlier) / CONFIG).exists():
        in_file = read_config(Path(earlier) / CONFIG, command)
        # Its own place, and the run that it went on from itself.
        in_file = {n: v for n, v in in_file.items() if n not in ("out", "from")}
    resolved = {}
    for option in command.options:
        name = option.name
        value = said.get(name, in_file.get(name, option.default))
        if option.form == "table":
            value = {**in_file.get(name, {}), **dict(said.get(name, ()))}
        elif option.form in ("list", "files"):
            value = value or []
        elif option.form == "switch":
            value = bool(value)
        resolved[name] = value
    return argparse.Namespace(command=command.name, **resolved)


def read_config(path: Path, command: Command) -> dict[str, Any]:
    """The options in a file; dashes may stand for underscores."""
    try:
        content = toml_content(path)
    except FLEError as error:
        raise UsageError(str(error)) from error
    known = {option.name: option for option in command.options if option.name not in UNWRITTEN}
    values = {}
    for key, value in content.items():
        option = known.get(key.replace("-", "_"))
        if option is None:
            hint = nearest(key, known)
            raise UsageError(f"{path}: fle {command.name} has no option {key!r}{hint}")
        values[option.name] = option.from_toml(value, str(path))
    return values


def as_toml(command: Command, options: argparse.Namespace, name: str = CONFIG) -> str:
    """The resolved options, in the order of the help, tables last; not those that are typed only.

    name: of the file that they will be in.
    """
    typed: list[str] = []
    lines: list[str] = []
    tables: list[str] = []
    for option in command.options:
        value = getattr(options, option.name)
        if option.name in UNWRITTEN or _is_absent(value):
            continue
        if option.typed:
            typed += _words(option, value)
            continue
        if option.form == "table":
            tables += ["", f"[{option.name}]", *_entries(value)]
        else:
            shown = _words(option, value) if option.form == "files" else value
            lines += _entries({option.name: shown})
    heading = " ".join(["fle", command.name, f"--config {name}", *typed])
    return "\n".join([f"# {heading}", *lines, *tables]) + "\n"


def as_words(command: Command, options: argparse.Namespace) -> list[str]:
    """A command line that says the same, without what is default anyway."""
    words = ["fle", command.name]
    for option in command.options:
        value = getattr(options, option.name)
        if option.name in UNWRITTEN or _is_absent(value) or value == option.default:
            continue
        words += _words(option, value)
    return words


def _is_absent(value: Any) -> bool:
    """By identity: 0 is a value, though it equals False."""
    return value is None or value is False or value == [] or value == {}


def _words(option: Option, value: Any) -> Iterable[str]:
    if option.form == "switch":
        return [option.flag]
    if option.form == "files":
        return [without_secrets(str(part)) for part in value]
    if option.form == "table":
        return [w for k, v in value.items() for w in (option.flag, f"{k}={_toml_value(v)}")]
    if option.form == "list":
        return [word for part in value for word in (option.flag, str(part))]
    if isinstance(value, list):
        value = ",".join(f"{part:g}" for part in value)
    return [option.flag, str(value)]


def _entries(values: Mapping[str, Any]) -> list[str]:
    return [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in values.items()]


def _toml_key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else _toml_value(name)


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(part) for part in value) + "]"
    # A JSON string is a TOML one, except that TOML wants DEL escaped too.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


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
