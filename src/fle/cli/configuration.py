"""Options from a TOML file, overridden by the command line, and written down as resolved."""

import argparse
import json
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fle.cli.commands import Command
from fle.cli.messages import UsageError
from fle.cli.options import Option
from fle.errors import nearest

# Said on the command line only.
UNWRITTEN = ("config", "json", "plan")


def resolve(command: Command, given: argparse.Namespace) -> argparse.Namespace:
    """Every option of a command: as given, else as in the file, else its default."""
    said = vars(given)
    config = said.get("config")
    in_file = {} if config is None else read_config(Path(config), command)
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
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from error
    known = {option.name: option for option in command.options if option.name not in UNWRITTEN}
    values = {}
    for key, value in content.items():
        option = known.get(key.replace("-", "_"))
        if option is None:
            hint = nearest(key, known)
            raise UsageError(f"{path}: fle {command.name} has no option {key!r}{hint}")
        values[option.name] = option.from_toml(value, str(path))
    return values


def as_toml(command: Command, options: argparse.Namespace) -> str:
    """The resolved options, in the order of the help, tables last; not those that enable code."""
    typed: list[str] = []
    lines: list[str] = []
    tables: list[str] = []
    for option in command.options:
        value = getattr(options, option.name)
        if option.name in UNWRITTEN or _is_absent(value):
            continue
        if option.enables_code:
            typed += _words(option, value)
            continue
        if option.form == "table":
            tables += ["", f"[{option.name}]", *_entries(value)]
        else:
            lines += _entries({option.name: value})
    command_line = " ".join(["fle", command.name, "--config run.toml", *typed])
    return "\n".join([f"# {command_line}", *lines, *tables]) + "\n"


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
        return [str(part) for part in value]
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
