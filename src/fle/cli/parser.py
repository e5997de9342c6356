"""What is typed and what a TOML file says become options, and options are written down again."""

import argparse
import importlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fle.cli.commands import COMMANDS, Command
from fle.cli.front import (
    EXIT_CODES,
    REPRODUCE,
    REPRODUCE_MODULE,
    REPRODUCE_SUMMARY,
    Parser,
    UsageError,
    has_reproduce,
    top_parser,
)
from fle.cli.options import Option
from fle.errors import FLEError, nearest
from fle.files import toml_content, without_secrets

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
