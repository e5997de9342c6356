"""From options to data, policies, of which there may be many, and plans."""

import argparse
import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fle import models
from fle.cli import UsageError
from fle.cli.options import NONE
from fle.data import Dataset, prepare, read
from fle.data.readers.coding import Wishes
from fle.data.readers.inspection import Inspection, inspect
from fle.data.readers.reading import open_table
from fle.errors import FLEError, PolicyError, SettingsError, nearest
from fle.executors import Executor, Processes, Ray, Slurm
from fle.files import toml_content, without_secrets
from fle.manifests import misfit
from fle.policies import Policy, RowProbabilities, load_policy
from fle.policies.loading import TIMEOUT_SECONDS
from fle.recipe import Recipe
from fle.screen import doing, one_line

if TYPE_CHECKING:
    from fle.data.readers.columns import Source
    from fle.fitting import Plan
    from fle.fitting.planning import Planner
    from fle.returns.intervals import Interval

# Bytes for a policy from a file, unless said otherwise.
POLICY_MEMORY: int | None = 4 * 2**30
# Of intervals, where none was asked for and a command has them; None gives none.
USUAL_LEVEL: float | None = 0.9
COLUMNS = "columns"
# What `fle.data.read` calls probabilities that have no other name.
UNNAMED = "probability"
SUFFIX, TABLE, WILD = ".onnx", ".toml", "*?["
MOST_POLICIES, LONGEST_NAME = 1_000, 100


def read_data(options: argparse.Namespace, policies: Sequence[str]) -> Dataset:
    """The logged data, with the probability columns that the policies need."""
    with doing(f"reading {one_line(', '.join(map(without_secrets, options.data)))}"):
        return read(_source(options), **_mapped(options, policies), **_wishes(options))


def inspect_data(options: argparse.Namespace, policies: Sequence[str]) -> Inspection:
    """The same, column by column, with every fault."""
    wishes = Wishes(**_wishes(options))
    return inspect(_source(options), _mapped(options, policies), wishes)


def _source(options: argparse.Namespace) -> str | list[str]:
    data: list[str] = options.data
    return data[0] if len(data) == 1 else data


def prepare_data(options: argparse.Namespace) -> Dataset:
    """The log that the last of the paths holds after this, prepared from the others."""
    *source, out = options.data
    if not source:
        raise UsageError("SOURCE OUT: expected files and then a folder, got one path")
    wishes = ("number_of_actions", "action_labels", "elapsed")
    mapped = _mapped(argparse.Namespace(**{**vars(options), "data": source}), [])
    given = {name: getattr(options, name) or None for name in wishes}
    with doing(f"preparing {one_line(', '.join(map(without_secrets, source)))}"):
        return prepare(source[0] if len(source) == 1 else source, out, **mapped, **given)


def _mapped(options: argparse.Namespace, policies: Sequence[str]) -> dict[str, Any]:
    """The columns of each part; None leaves one to the reader."""
    return {
        "observation": _names(options.observation),
        "action": _names(options.action),
        "reward": _names(options.reward),
        "episode": options.episode,
        "step": options.step,
        "terminated": _ends(options.terminated),
        "truncated": _names(options.truncated),
        "next_observation": _names(options.next_observation),
        "weight": options.weight,
        "propensity": _names(options.propensity),
        "probability": _probability(options, policies),
    }


def _wishes(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "number_of_actions": options.number_of_actions,
        "action_labels": options.action_labels or None,
        "category": _names(options.category),
        "missing": options.missing,
        "elapsed": options.elapsed,
    }


def read_data_to_fit(options: argparse.Namespace, policies: Sequence[str]) -> Dataset:
    """The same for a fit, whose settings are refused, if they must be, before a file is read."""
    # Here and not above: JAX takes a second to import, and `fle check` needs none of it.
    with doing("starting"):
        from fle.fitting.problem import checked_gamma

    checked_gamma(options.gamma, options.horizon, options.stages)
    named_model(options)
    _check_recipe(options.recipe)
    data = read_data(options, policies)
    return data.with_steps() if options.rows == "step" and data.steps is None else data


def named_policy(text: str, data: Dataset, options: argparse.Namespace) -> Policy:
    """The policy that a text stands for."""
    kind, colon, prefix = text.partition(":")
    if kind == COLUMNS:
        name = prefix if colon else UNNAMED
        return RowProbabilities(*data.recorded_probabilities(name))
    return load_policy(
        text,
        input=options.policy_input,
        output=",".join(options.policy_output) or None,
        allow_code=options.allow_code,
        timeout=options.policy_timeout or TIMEOUT_SECONDS,
        memory=options.policy_memory or POLICY_MEMORY,
    )


def planned(text: str, data: Dataset, options: argparse.Namespace) -> "Plan":
    """The plan of evaluating one policy, which is asked here."""
    policy = named_policy(text, data, options)
    return planner(data, options).plan(policy)


def planner(data: Dataset, options: argparse.Namespace) -> "Planner":
    """What makes the plans of all policies of a command."""
    from fle.fitting.planning import Asked, Planner

    # What a command has no option for stays as usual: a gate gives no first look, as that decides
    # nothing, and what evaluates several policies has one log.
    others = {
        "model": named_model(options),
        "interval": asked_interval(options),
        "second_opinions": not options.no_second_opinions,
        "earlier": getattr(options, "from", None),
    }
    return Planner.of(data, Asked.among(vars(options) | others))


def asked_executor(options: argparse.Namespace) -> Executor | None:
    """Who carries out the fits; None for this process."""
    asked = [name for name in ("jobs", "cluster", "slurm") if getattr(options, name) is not None]
    if len(asked) > 1:
        raise UsageError(f"expected --jobs, --cluster or --slurm, got --{' and --'.join(asked)}")
    if options.jobs is not None:
        return Processes(options.jobs)
    if options.cluster is not None:
        return Ray(options.cluster, cpus=options.job_cpus, gpus=options.job_gpus)
    return None if options.slurm is None else Slurm(options.slurm)


def asked_interval(options: argparse.Namespace) -> "Interval | None":
    """The intervals that are wanted; None for none, as of a first look."""
    # Imported here, as SciPy would slow down the help.
    from fle.returns.intervals import Interval

    level = options.interval
    if level is None and not getattr(options, "quick", False):
        level = USUAL_LEVEL
    return None if level in (None, NONE) else Interval(level, options.replicates)


def named_model(options: argparse.Namespace) -> "str | models.ModelSpec":
    """The model with its hyperparameters, or "auto"."""
    if options.model == "auto":
        if options.hyperparameter:
            raise UsageError(
                "--hyperparameter depends on the model, got --model auto; name a model, for example"
                " --model gmm"
            )
        return "auto"
    family: Any = models.family(options.model)
    values = _hyperparameters(family, options.hyperparameter)
    for field in dataclasses.fields(family):
        needed = field.default is field.default_factory is dataclasses.MISSING
        if needed and field.name not in values:
            raise UsageError(
                f"--hyperparameter {field.name}=... is missing: --model {options.model} needs it"
            )
    spec: models.ModelSpec = family(**values)
    return spec


def _check_recipe(given: dict[str, Any]) -> None:
    try:
        Recipe.of(given)
    except SettingsError as error:
        raise UsageError(f"--recipe: {error}") from error


def _hyperparameters(family: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Values whose names and types a model knows."""
    known = {field.name: field.type for field in dataclasses.fields(family)}
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise UsageError(
                f"--hyperparameter: {family.__name__} has no {name!r}{nearest(name, known)};"
                f" expected any of {', '.join(known)}"
            )
        checked[name] = tuple(value) if isinstance(value, list) else value
        if misfit(checked[name], known[name], name) is not None:
            kind = known[name]
            expected = kind.__name__ if isinstance(kind, type) else str(kind)
            raise UsageError(f"--hyperparameter {name}: expected {expected}, got {value!r}")
    return checked


def _names(given: list[str]) -> str | list[str] | None:
    if not given:
        return None
    return given[0] if len(given) == 1 else given


def _ends(given: list[str]) -> str | list[str] | bool | None:
    """Columns, or that every row ends its episode."""
    return True if [name.lower() for name in given] == ["true"] else _names(given)


def _probability(options: argparse.Namespace, policies: Sequence[str]) -> Any:
    """By policy, the columns of its probabilities; None leaves it to the reader."""
    wanted: dict[str, str | list[str]] = {}
    own = _names(options.probability)
    for text in policies:
        kind, colon, prefix = text.partition(":")
        if kind == COLUMNS and colon:
            if not prefix:
                raise PolicyError("columns: is followed by nothing; expected columns:PREFIX")
            wanted[prefix] = prefix
        elif text == COLUMNS:
            wanted[UNNAMED] = own or UNNAMED
    if set(wanted) <= {UNNAMED}:
        return own
    return wanted


class NamedPolicies(Mapping[str, Policy]):
    """Policies by name, each loaded when it is asked for: a file takes a process of its own."""

    def __init__(self, texts: Mapping[str, str], data: Dataset, options: argparse.Namespace):
        self._texts, self._data, self._options = texts, data, options

    def __getitem__(self, name: str) -> Policy:
        text = self._texts[name]
        try:
            return named_policy(text, self._data, self._options)
        except FLEError as error:
            if text in str(error):
                raise
            raise type(error)(f"{text}: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


def listed_policies(given: Sequence[str], data: Sequence[str]) -> dict[str, str]:
    """By name, what every --policy of a comparison stands for.

    A folder is all ONNX files in it, a pattern those that fit it, named as the files are; a TOML
    file is a table `[policies]` of names; `columns:PREFIX*` is every group of probability columns
    of the log that fits. Everything else is one policy, named as it is written.
    """
    found: list[tuple[str, str]] = []
    for text in given:
        found += _listed(text, data)
    texts = [text for _, text in found]
    twice, times = Counter(texts).most_common(1)[0]
    if times > 1:
        raise UsageError(f"--policy: expected different policies, got {twice} twice")
    if not 2 <= len(found) <= MOST_POLICIES:
        raise UsageError(
            f"--policy: expected at least two policies, at most {MOST_POLICIES:,}, got"
            f" {len(found):,}; give one --policy for each, a folder of ONNX files, a pattern such"
            f" as 'policies/*{SUFFIX}', or a table names{TABLE}"
        )
    # Files of one name in several folders are told apart by their paths.
    times_named = Counter(name for name, _ in found)
    return {name if times_named[name] == 1 else text: text for name, text in found}


def _listed(text: str, data: Sequence[str]) -> list[tuple[str, str]]:
    kind, colon, prefix = text.partition(":")
    if kind == COLUMNS and colon and _is_pattern(prefix):
        return _of_columns(text, prefix, data)
    path = Path(text)
    if path.is_dir():
        files = sorted(str(file) for file in path.glob(f"*{SUFFIX}"))
        if not files:
            raise UsageError(f"--policy {text}: expected a folder of {SUFFIX} files, got none")
        return [(Path(file).stem, file) for file in files]
    if path.suffix.lower() == TABLE:
        return _of_table(path)
    if _is_pattern(text) and not path.exists():
        files = sorted(glob(text, recursive=True))
        if not files:
            raise UsageError(f"--policy {text}: expected a pattern of files, got none that fits")
        return [(Path(file).stem, file) for file in files]
    return [(text, text)]


def _is_pattern(text: str) -> bool:
    return any(sign in text for sign in WILD)


def _of_table(path: Path) -> list[tuple[str, str]]:
    """Names and policies of a file; paths are seen from its folder."""
    try:
        table = toml_content(path)
    except FLEError as error:
        raise UsageError(f"--policy {error}") from error
    policies = table.get("policies")
    form = '[policies] with lines such as old = "old.onnx"'
    if not isinstance(policies, dict) or not policies:
        raise UsageError(f"--policy {path}: expected {form}, got {', '.join(table) or 'nothing'}")
    for name, text in policies.items():
        if not isinstance(text, str):
            raise UsageError(f"--policy {path}: {name}: expected {form}, got {text!r}")
        if not name.strip() or len(name) > LONGEST_NAME or one_line(name) != name:
            raise UsageError(
                f"--policy {path}: expected names of one line, of at most {LONGEST_NAME} letters,"
                f" got {name[:LONGEST_NAME]!r}"
            )
    return [(name, _seen_from(path.parent, text)) for name, text in policies.items()]


def _seen_from(folder: Path, text: str) -> str:
    return str(folder / text) if text.lower().endswith(SUFFIX) else text


def _of_columns(text: str, pattern: str, data: Sequence[str]) -> list[tuple[str, str]]:
    """Groups of columns PREFIX.0, PREFIX.1, ... whose prefix fits."""
    table: Source | None = open_table(list(data) if len(data) > 1 else data[0])
    names = () if table is None else table.names
    groups = dict.fromkeys(name.rpartition(".")[0] for name in names if "." in name)
    fitting = [prefix for prefix in groups if fnmatchcase(prefix, pattern)]
    if not fitting:
        shown = ", ".join(list(groups)[:10]) or "no columns NAME.0, NAME.1, ..."
        raise UsageError(
            f"--policy {text}: expected columns of the log that fit {pattern}.*, got {shown}"
        )
    return [(prefix, f"{COLUMNS}:{prefix}") for prefix in fitting]
