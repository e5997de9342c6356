"""The command line: a thin layer that reads files, calls the rest of the package, and prints.

Here is what `fle` shows before anything heavy is imported: its help, its version, a first line.
"""

import argparse
import importlib.util
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import fle
from fle.errors import SettingsError, nearest
from fle.screen import doing

# By command, in the order of the help.
SUMMARIES = {
    "prepare": "Parquet shards of any size, read once into a folder that fits map into memory",
    "check": "what is in the data, every problem with it, and how well it covers a policy",
    "evaluate": "what a policy would earn, and how badly it could go",
    "compare": "several policies on the same data, ranked, with paired differences",
    "gate": "whether a policy keeps what is required of it, for pipelines",
    "report": "draw the report of a finished run again",
    "demo": "evaluate a policy on bundled data, where the truth is known",
    "bench": "the benchmark tasks beside other estimators; from a checkout of the project",
    "job": "carry out jobs that were written for SLURM, by their numbers",
    "completion": "print a script that completes commands and options in a shell",
}
REPRODUCE, REPRODUCE_SUMMARY = "reproduce", "the tables and figures of the paper"
REPRODUCE_MODULE = "fle.paper.command"
EXIT_CODES = """\
exit codes:
  0  done
  1  no estimate: the data covers the policy too thinly, or the fit failed
  2  wrong input, or wrong usage
  3  a fault in fle itself
  4  of `fle gate`: a requirement is not met
  5  of `fle gate`: undecided
  6  jobs were written for SLURM; repeat the command when they have run
  130  stopped by the user"""
# What needs no command.
LIGHT = (["-h"], ["--help"], ["--version"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments in LIGHT:
        parser, subparsers = top_parser()
        for name, summary in SUMMARIES.items():
            subparsers.add_parser(name, help=summary)
        if has_reproduce():
            subparsers.add_parser(REPRODUCE, help=REPRODUCE_SUMMARY)
        try:
            parser.parse_args(arguments)
        except SystemExit:
            # argparse has printed it.
            return 0
    with doing("starting"):
        from fle.cli.entry import run_command_line
    return run_command_line(arguments)


class UsageError(SettingsError):
    """The command line or its configuration says something that no command understands."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, and room for the longest option."""

    def __init__(self, prog: str):
        super().__init__(prog, max_help_position=32, width=100)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that never guesses, and raises instead of ending the process."""

    def __init__(self, **settings: Any):
        super().__init__(allow_abbrev=False, formatter_class=_Help, **settings)

    def error(self, message: str) -> NoReturn:
        """A wrong command line."""
        raise UsageError(f"{spoken(message)} (see {self.prog} --help)")


def top_parser() -> tuple[Parser, Any]:
    """The parser without its commands, and what they are added to."""
    parser = Parser(
        prog="fle",
        description="What would a policy earn, and how badly could it go? Answers from logged data"
        " alone.",
        epilog=f"fle COMMAND --help shows options and examples.\n\n{EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"fle {fle.__version__}")
    return parser, parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")


def has_reproduce() -> bool:
    """Whether the paper's experiments are installed."""
    return importlib.util.find_spec(REPRODUCE_MODULE) is not None


def spoken(message: str) -> str:
    """argparse's sentence in our words, with the nearest name where a choice is wrong."""
    message = message.removeprefix("argument ")
    choice = re.fullmatch(r"(\S+): invalid choice: '(.*)' \(choose from (.*)\)", message)
    if choice is None:
        return message
    known = [word.strip(" '") for word in choice[3].split(",")]
    what = "unknown command" if choice[1] == "COMMAND" else f"{choice[1]}: unknown"
    hint = nearest(choice[2], known) or f"; expected one of {', '.join(known)}"
    return f"{what} {choice[2]!r}{hint}"
