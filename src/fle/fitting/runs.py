"""Run directories: one writer, where a run goes on, its result, and how a grown log uses it."""

import math
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fle.data import Dataset
from fle.errors import FLEError, SettingsError
from fle.files import fetched, make_directory, read_json, remove_leftovers, sole_writer, write_json
from fle.fitting.checkpoints import CHECKPOINT, Checkpoints, Resume
from fle.fitting.encoding import Encoder
from fle.fitting.evaluation import Evaluation, Provenance, rows_hash
from fle.fitting.measurement import bellman_errors
from fle.fitting.run_contents import (
    MODEL,
    REPLICATES,
    RESULT,
    RUN,
    SAMPLES,
    read_result,
    write_result,
)
from fle.manifests import MANIFEST, Key, ManifestError, check_manifest, is_signed, write_manifest
from fle.models.specs import ModelSpec
from fle.recipe import NEAR, NEGLIGIBLE, REFIT_STEPS, Recipe
from fle.returns.risk import percentage

if TYPE_CHECKING:
    from fle.fitting.plans import Plan

CHECKPOINTS = "checkpoints"
# Without these there is no result.
CORE = (RUN, MODEL, RESULT)
# For other programs, where pyarrow is installed; and of evaluations with intervals.
FURTHER = (SAMPLES, REPLICATES)
# What the command line adds, and writes anew each time.
ADDED = ("run.toml", "data.arrow", "context.json", "report.html")
# All that is written in a run directory itself.
WRITTEN = "|".join(re.escape(name) for name in (*CORE, *FURTHER, *ADDED, MANIFEST))
# Of the returns that are worse than most, as the usual table shows them.
TAIL = 0.1
Earlier = Evaluation | str | os.PathLike[str] | None


class RunDirectory:
    """A run directory that this process alone writes to; made by `begin_run`."""

    def __init__(self, path: Path, provenance: Provenance, resume: Resume):
        self._path = path
        self._resume = resume
        self.checkpoints = Checkpoints(path / CHECKPOINTS, provenance.identity, resume)
        # What the user should know before the run goes on.
        self.remarks: list[str] = []
        saved = self._saved_provenance()
        if saved is not None:
            self._require_same(saved, provenance)
        if resume == "previous":
            (path / MANIFEST).unlink(missing_ok=True)
        if saved is None or not self.finished:
            write_json(path / RUN, (saved or provenance).as_plain())

    @property
    def finished(self) -> bool:
        """Whether the result is here, and was not asked to be made again."""
        return self._resume == "latest" and has_result(self._path)

    def result(self, model: ModelSpec) -> Evaluation:
        """The result of a finished run."""
        # A command that was killed while it wrote what it adds is repeated to write it anew.
        check_run(self._path, rewritten=ADDED)
        return read_result(self._path, model)

    def finish(self, evaluation: Evaluation, key: Key | None = None) -> None:
        """Write the result."""
        write_result(evaluation, self._path)
        self.checkpoints.forget_refits()
        _seal(self._path, key)

    def _saved_provenance(self) -> Provenance | None:
        """What the run was begun with; None if there is nothing yet that could go on."""
        path = self._path / RUN
        begun = self.checkpoints.files() or has_result(self._path)
        if not begun or not path.exists():
            return None
        return Provenance.from_plain(read_json(path), str(path))

    def _require_same(self, saved: Provenance, now: Provenance) -> None:
        differences = saved.differences(now)
        if differences:
            raise SettingsError(
                f"The run in {self._path} has another fingerprint: {'; '.join(differences)}. "
                "Repeat the call as it was, or give another `out`."
            )
        if saved.versions != now.versions and not self.finished:
            changes = [
                f"{name} {saved.versions.get(name)} is now {version}"
                for name, version in now.versions.items()
                if saved.versions.get(name) != version
            ]
            self.remarks.append(
                f"The run goes on under other versions ({', '.join(changes)}), so its result may "
                "differ in the last digits from an undisturbed one."
            )


@contextmanager
def begin_run(
    out: str | os.PathLike[str], provenance: Provenance, spec: ModelSpec, resume: Resume
) -> Iterator[RunDirectory]:
    """Open a run directory for writing, or refuse before anything is trained."""
    if resume not in ("latest", "previous"):
        raise SettingsError(f'resume: expected "latest" or "previous", got {resume!r}.')
    spec.require_plain()
    path = Path(out)
    make_directory(path)
    with sole_writer(path):
        remove_leftovers(path, WRITTEN)
        yield RunDirectory(path, provenance, resume)


def load(
    directory: str | os.PathLike[str], *, model: ModelSpec | None = None, key: Key | None = None
) -> Evaluation:
    """The evaluation in a run directory, as `fle.evaluate` returned it.

    Every file is held against `manifest.json` before anything in it is believed.

    Args:
        directory: what was given to `fle.evaluate` as `out`, or to `Evaluation.save`; or where a
            copy of it lies in another file system, as `s3://bucket/run`, which needs pyarrow.
        model: the hyperparameters of a model family of your own; not needed for those of fle.
        key: what the run was signed with, as bytes or as the path of a file; a run that was not
            signed with it is refused.

    Example: `fle.load("run/", key="team.key").returns.cvar(0.1)`.
    """
    if isinstance(directory, str) and "://" in directory:
        with fetched(directory) as copy:
            return load(copy, model=model, key=key)
    path = Path(directory)
    check_run(path, key=key)
    return read_result(path, model)


def save(evaluation: Evaluation, directory: str | os.PathLike[str], key: Key | None = None) -> None:
    """Write an evaluation to a run directory of its own, signed if there is a key."""
    with begin_run(directory, evaluation.provenance, evaluation.model, "latest") as run:
        run.finish(evaluation, key)


def check_run(
    path: Path, *, key: Key | None = None, rewritten: Collection[str] = ()
) -> frozenset[str]:
    """The files of a finished run, each of which is the one that was written.

    rewritten: those that are about to be written anew, and need not be what they were.
    """
    if not has_result(path):
        raise FLEError(_unfinished(path))
    listed = check_manifest(path, key=key, rewritten=rewritten)
    missing = [name for name in CORE if name not in listed]
    if missing:
        raise ManifestError(f"{path / MANIFEST} does not list {missing[0]}, which every run has.")
    return listed


def seal_run(path: Path, key: Key | None) -> None:
    """Write the manifest of a finished run anew, after files were added to it."""
    with sole_writer(path):
        remove_leftovers(path, WRITTEN)
        _seal(path, key)


def require_key(path: Path, key: Key | None) -> None:
    """Refuse to write to a signed run what could not be signed again."""
    if not is_signed(path):
        return
    if key is None:
        raise SettingsError(
            f"The run in {path} is signed. Give the key that signed it (`sign_key`), so that it "
            "can be signed again, or another `out`."
        )
    check_manifest(path, key=key, rewritten=ADDED)


def _seal(path: Path, key: Key | None) -> None:
    names = [name for name in (*CORE, *FURTHER, *ADDED) if (path / name).exists()]
    kept = [f"{CHECKPOINTS}/{file.name}" for file in (path / CHECKPOINTS).glob(CHECKPOINT)]
    write_manifest(path, [*names, *kept], key)


def has_result(path: Path) -> bool:
    """Whether a run is finished: the manifest is written last."""
    return (path / MANIFEST).exists()


def _unfinished(path: Path) -> str:
    if not (path / RUN).exists():
        what = "has no run.json" if path.is_dir() else "is not there"
        return (
            f"{path} is not a run directory: it {what}. Give what was given to fle.evaluate as "
            "`out`, or to Evaluation.save."
        )
    again = (
        f"Repeat the call of fle.evaluate with out={str(path)!r} and it goes on from its last "
        "checkpoint."
    )
    if (path / RESULT).exists():
        return f"{path} has a result but no {MANIFEST}, so nothing says whose it is. {again}"
    return f"The run in {path} is not finished. {again}"


@dataclass(frozen=True)
class Growth:
    """What changed between an earlier run and the log that there is now.

    rows, episodes: then and now. same: whether the first rows are still those of the run; None
        where the run does not say. figures: then, by return, its mean and CVaR.
    """

    rows: tuple[int, int]
    episodes: tuple[int | None, int | None]
    same: bool | None
    figures: tuple[tuple[str, float, float], ...]

    @classmethod
    def since(cls, earlier: Evaluation, data: Dataset) -> "Growth":
        """Of the log of an evaluation and these data."""
        then, now = earlier.logged, len(data)
        same = None
        if then.content:
            same = now >= then.rows and rows_hash(data, then.rows) == then.content
        shown = _figures(earlier)
        episodes = then.episodes, data.number_of_episodes
        return cls((then.rows, now), episodes, same, shown)

    def in_words(self) -> tuple[str, ...]:
        """What changed in the log, a line each."""
        lines = [f"since the earlier run: {_change(*self.rows, 'rows')}"]
        then, now = self.episodes
        if then is not None and now is not None:
            lines[0] += f", {_change(then, now, 'episodes')}"
        if self.same is None:
            lines.append("whether its rows have changed cannot be told: its run is of before")
        elif self.same:
            lines.append("its rows are the first of the log, unchanged")
        return tuple(lines)

    @property
    def warning(self) -> str | None:
        """What should be known about the rows of the earlier run."""
        if self.same is not False:
            return None
        return (
            f"the first {self.rows[0]:,} rows of the log are not those of the earlier run: rows "
            "were changed, removed, reordered, or put between them, so that a difference between "
            "the two estimates is not of new rows alone"
        )

    def moved(self, evaluation: Evaluation) -> tuple[str, ...]:
        """How far the estimate is from the earlier one, a line a return."""
        then = {name: values for name, *values in self.figures}
        return tuple(
            f"{name}: mean {then[name][0]:.5g} then, {mean:.5g} now; mean of the worst "
            f"{percentage(TAIL)} {then[name][1]:.5g} then, {tail:.5g} now"
            for name, mean, tail in _figures(evaluation)
            if name in then
        )


def _figures(evaluation: Evaluation) -> tuple[tuple[str, float, float], ...]:
    """By return its mean and CVaR, where they may be used."""
    if evaluation.verdict.level == "do not use":
        return ()
    returns = evaluation.returns
    laws = [(name, returns.marginal(name)) for name in evaluation.return_names]
    return tuple((name, float(law.mean()), float(law.cvar(TAIL))) for name, law in laws)


def _change(then: int, now: int, what: str) -> str:
    word = "more" if now >= then else "fewer"
    return f"{abs(now - then):,} {word} {what}, {now:,} in all"


class Inherited(NamedTuple):
    """An earlier run, if any, and what is taken from it where nothing else was asked for."""

    run: Evaluation | None
    gamma: float | None
    horizon: int | None
    model: str | ModelSpec
    recipe: Recipe


def inherited(
    earlier: Earlier,
    gamma: float | None,
    horizon: int | None,
    model: str | ModelSpec,
    asked: Recipe,
) -> Inherited:
    """The question and settings of an earlier run; another return or model is refused."""
    if earlier is None:
        return Inherited(None, gamma, horizon, model, asked)
    run = earlier if isinstance(earlier, Evaluation) else load(earlier)
    settings: dict[str, tuple[Any, Any]] = {
        "gamma": (gamma, run.gamma),
        "horizon": (horizon, run.horizon),
        "model": (None if model in ("auto", run.model.name) else model, run.model),
    }
    for name, (value, own) in settings.items():
        if value is not None and value != own:
            raise SettingsError(
                f"{name}: the earlier run has {own!r}, got {value!r}. Leave it out, or evaluate "
                "without the earlier run."
            )
    own = {field.name: getattr(run.recipe, field.name) for field in fields(Recipe)}
    # Where it was itself gone on from another, with fewer steps.
    gone_on = run.provenance.settings.get("from")
    own["steps"] = gone_on["steps"] if gone_on else own["steps"]
    given = {name: getattr(asked, name) for name in own}
    recipe = Recipe(**{n: own[n] if value is None else value for n, value in given.items()})
    return Inherited(run, run.gamma, run.horizon, run.model, recipe)


def continued_encoder(earlier: Evaluation, data: Dataset, fresh: Encoder) -> Encoder:
    """The units in which the fits of the earlier run are, for data of the same columns."""
    own, names = earlier.encoder, earlier.logged
    for what, then, now in (
        ("observation columns", names.observation_names, data.observation_names),
        ("action columns", names.action_names, data.action_names),
        ("action labels", names.action_labels, data.action_labels),
        ("rewards", earlier.return_names, data.reward_names),
    ):
        if then != now and (then or what == "rewards") and now:
            new = [name for name in now if name not in then] or list(now)
            raise SettingsError(
                f"{what}: the earlier run has {', '.join(then)}; got {', '.join(new)} too, or in "
                "another order. Read the same columns, or evaluate without the earlier run."
            )
    if own.sizes != fresh.sizes:
        pairs = zip(own.sizes._asdict().items(), fresh.sizes, strict=True)
        changes = [f"{name} {then}, now {now}" for (name, then), now in pairs if then != now]
        raise SettingsError(
            f"The earlier run is of data of another shape ({'; '.join(changes)}), so that its fits "
            "cannot read this log. Read the same columns, or evaluate without the earlier run."
        )
    return replace(own, reward_origin=fresh.reward_origin, reward_spacing=fresh.reward_spacing)


def going_on_from(earlier: Evaluation, plan: "Plan") -> "Plan":
    """The plan from the fits of the earlier run on, with as much less work as they are near.

    How near is measured on the grown log: how far the fits are from their own targets there, in
    standard deviations of the return.
    """
    growth = Growth.since(earlier, plan.data)
    whence: dict[str, Any] = {"run": earlier.provenance.identity, "steps": plan.recipe.steps}
    reason, stages, steps = _less(earlier, plan)
    warm = stages is not None
    recipe = plan.recipe if steps is None else replace(plan.recipe, steps=steps)
    problem = replace(plan.problem, stages=stages) if stages is not None else plan.problem
    settings = plan.provenance.settings | {"from": whence, "stages": problem.stages}
    settings["recipe"] = settings["recipe"] | {"steps": recipe.steps}
    said = () if growth.warning is None else (growth.warning,)
    return replace(
        plan,
        problem=problem,
        recipe=recipe,
        stages=plan.stages[-problem.stages :],
        warm=earlier.fits if warm else (),
        growth=growth,
        provenance=replace(plan.provenance, settings=settings),
        notes=(*plan.notes, *growth.in_words(), reason),
        warnings=(*plan.warnings, *said),
    )


def _less(earlier: Evaluation, plan: "Plan") -> tuple[str, int | None, int | None]:
    """Why, how many stages from the earlier fits on, and steps of each; None for a fit anew."""
    discounted = plan.problem.horizon is None
    if plan.problem.rows == "split" or not (discounted or plan.is_trained):
        return "fitted anew: nothing of an earlier fit is of use to such a fit", None, None
    # On all rows: those held out now may have been seen by the earlier fit, and are few.
    found = bellman_errors(plan, earlier.fits, held_out=False)
    if found is None:
        return "fitted anew: too few rows tell how near the earlier fit is", None, None
    number, steps = len(plan.stages), plan.recipe.steps
    factor = plan.trail.shrinkage(np.random.default_rng(0))[1] if discounted else 0.0
    shape = max(one.error for one in found.stages) / (1 - factor)
    gap = max(abs(found.bias) + found.bias_error, shape)
    near = f"the earlier fit is within {gap:.2g} standard deviations of the return"
    if not discounted:
        if gap > NEAR:
            return f"fitted anew: {near} only", None, None
        fewer = max(1, round(REFIT_STEPS * steps))
        return f"{near}: {fewer:,} instead of {steps:,} steps a stage", number, fewer
    if gap <= NEGLIGIBLE or factor == 0:
        needed = 1
    else:
        needed = max(1, math.ceil(math.log(NEGLIGIBLE / gap) / math.log(factor)))
    if needed >= number:
        return f"fitted anew: {near} only", None, None
    return f"{near}: {needed:,} stages from there on instead of {number:,}", needed, None
