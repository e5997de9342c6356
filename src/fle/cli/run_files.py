"""What the command line adds to a run directory: options, the data, the report and its setting."""

import argparse
import dataclasses
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fle.cli.commands import Command
from fle.cli.entry import CONFIG, as_toml, as_words
from fle.cli.messages import Messages
from fle.data import Dataset, write_cache
from fle.errors import install
from fle.files import (
    make_directory,
    read_json,
    remove_leftovers,
    write_atomically,
    write_json,
)
from fle.manifests import MANIFEST, ManifestError, require_form
from fle.screen import html_lines

if TYPE_CHECKING:
    from fle.fitting import Comparison, Evaluation
    from fle.returns import Measure, ReturnDistribution

DATA, CONTEXT, REPORT = "data.arrow", "context.json", "report.html"
COMPARISON, COMPARISON_PAGE = "compare.json", "comparison.html"
DRAWING = ("altair", "vl_convert", "jinja2")


@dataclasses.dataclass(frozen=True)
class Context:
    """What a report shows that the evaluation does not know.

    example: the bundled example whose truth stands beside the estimate.
    """

    title: str
    command: str
    warnings: tuple[str, ...]
    example: str | None = None

    def as_plain(self) -> dict[str, Any]:
        """For a JSON file."""
        return dataclasses.asdict(self)


def write_config(folder: Path, command: Command, options: argparse.Namespace) -> None:
    """The resolved options, for --config."""
    make_directory(folder)
    write_atomically(folder / CONFIG, as_toml(command, options).encode("utf-8"))


@contextmanager
def settings_kept(
    folder: Path | None,
    command: Command,
    options: argparse.Namespace,
    data: Dataset,
    runs: Sequence[Path],
) -> Iterator[None]:
    """Around the fits of some runs: their options and a copy of their data are in the folder.

    They are written first, so that a run that is killed is all there. Where something was begun
    already, which may have other settings, the fit has to accept it first.
    """
    if folder is None:
        yield
        return
    from fle.fitting.runs import RUN, require_key

    for run in runs:
        require_key(run, options.sign_key)
    # Of a command that was killed; what a run itself wrote is its own business.
    remove_leftovers(folder, "|".join(map(re.escape, (CONFIG, DATA, COMPARISON, COMPARISON_PAGE))))
    new = not any((run / RUN).exists() for run in runs)
    if not new:
        yield
    write_config(folder, command, options)
    # A prepared log is where it is already, and may be far larger than the run.
    if not (options.no_copy or data.prepared) and find_spec("pyarrow") is not None:
        write_cache(data, folder / DATA)
    if new:
        yield


def write_run_files(
    folder: Path,
    evaluation: "Evaluation",
    context: Context,
    messages: Messages,
    truth: "ReturnDistribution | None",
    sign_key: str | None,
) -> Path | None:
    """What is known after the fit; where the report is, if it could be drawn."""
    from fle.fitting.runs import seal_run

    write_json(folder / CONTEXT, context.as_plain())
    path = draw_report(evaluation, folder / REPORT, context, messages, truth)
    seal_run(folder, sign_key)
    return path


def draw_report(
    evaluation: "Evaluation",
    path: Path,
    context: Context | None,
    messages: Messages,
    truth: "ReturnDistribution | None",
) -> Path | None:
    """The report; tables alone where the packages that draw it are not installed."""
    if not _can_draw(messages):
        return write_tables(path, evaluation._repr_html_(), context.warnings if context else ())
    from fle.report import Extras, write_report

    if context is None:
        write_report(evaluation, path, truth=truth)
        return path
    extras = Extras(warnings=context.warnings)
    write_report(
        evaluation,
        path,
        truth=truth,
        title=context.title,
        command=context.command,
        extras=extras,
    )
    return path


def draw_comparison(
    comparison: "Comparison", path: Path, by: "Measure", messages: Messages
) -> Path | None:
    """The page of a comparison, on the same terms."""
    if not comparison.evaluations:
        return None
    if not _can_draw(messages):
        return write_tables(path, comparison._repr_html_(), ())
    comparison.report(path, by=by)
    return path


def _can_draw(messages: Messages) -> bool:
    missing = [name for name in DRAWING if find_spec(name) is None]
    if missing:
        messages.warn(
            f"the report has tables and no charts, as {', '.join(missing)} is missing;"
            f" {install('charts')}"
        )
    return not missing


def write_tables(path: Path, tables: str, warnings: Sequence[str]) -> Path:
    """The report without charts, which needs no other package."""
    said = html_lines("Warnings", [("warning", text) for text in warnings]) if warnings else ""
    page = f"<!doctype html><meta charset='utf-8'><title>fle</title>{said}{tables}\n"
    write_atomically(path, page.encode("utf-8"))
    return path


def read_context(folder: Path, listed: Collection[str]) -> Context | None:
    """What `write_run_files` wrote; None for a run that was made in Python.

    listed: the files that the manifest vouches for.
    """
    path = folder / CONTEXT
    if CONTEXT not in listed:
        if path.exists():
            raise ManifestError(
                f"{path} is not listed in {MANIFEST}: somebody added it, or a command was killed."
                " Delete it, or repeat the command"
            )
        return None
    plain = read_json(path)
    require_form(plain, Context, str(path))
    return Context(**{**plain, "warnings": tuple(plain["warnings"])})


def spoken_command(command: Command, options: argparse.Namespace) -> str:
    """The command line that gives the same again."""
    return shlex.join(as_words(command, options))
