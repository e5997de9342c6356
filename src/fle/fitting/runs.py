"""Run directories: one writer, what a run was begun with, where it goes on, and its result."""

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from fle.errors import FLEError, SettingsError
from fle.files import fetched, make_directory, read_json, remove_leftovers, sole_writer, write_json
from fle.fitting.checkpoints import CHECKPOINT, Checkpoints, Resume
from fle.fitting.evaluation import Evaluation, Provenance
from fle.fitting.run_contents import (
    MODEL,
    REPLICATES,
    RESULT,
    RUN,
    SAMPLES,
    read_result,
    write_result,
)
from fle.manifests import (
    MANIFEST,
    Key,
    ManifestError,
    check_manifest,
    is_signed,
    write_manifest,
)
from fle.models.specs import ModelSpec

CHECKPOINTS = "checkpoints"
# Without these there is no result.
CORE = (RUN, MODEL, RESULT)
# For other programs, where pyarrow is installed; and of evaluations with intervals.
FURTHER = (SAMPLES, REPLICATES)
# What the command line adds, and writes anew each time.
ADDED = ("run.toml", "data.arrow", "context.json", "report.html")
# All that is written in a run directory itself.
WRITTEN = "|".join(re.escape(name) for name in (*CORE, *FURTHER, *ADDED, MANIFEST))


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
