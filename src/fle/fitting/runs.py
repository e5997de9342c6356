"""The directory of a run: one writer, what it was begun with, where it goes on, and its end."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fle.errors import FLEError, SettingsError
from fle.files import (
    make_directory,
    read_json,
    remove_leftovers,
    sole_writer,
    write_json,
)
from fle.fitting.checkpoints import Checkpoints, Resume
from fle.fitting.evaluation import Evaluation
from fle.fitting.provenance import Provenance
from fle.fitting.saving import MODEL, RESULT, RUN, read_result, require_parquet, write_result
from fle.models.specs import ModelSpec

CHECKPOINTS = "checkpoints"


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
            (path / RESULT).unlink(missing_ok=True)
        if saved is None or not self.finished:
            write_json(path / RUN, (saved or provenance).as_plain())

    @property
    def finished(self) -> bool:
        """Whether the result is here, and was not asked to be made again."""
        return self._resume == "latest" and _has_result(self._path)

    def result(self, model: ModelSpec) -> Evaluation:
        """The result of a finished run."""
        return read_result(self._path, model)

    def finish(self, evaluation: Evaluation) -> None:
        """Write the result."""
        write_result(evaluation, self._path)

    def _saved_provenance(self) -> Provenance | None:
        """What the run was begun with; None if there is nothing yet that could go on."""
        path = self._path / RUN
        begun = self.checkpoints.files() or (self._path / RESULT).exists()
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
        raise SettingsError(f'resume must be "latest" or "previous", got {resume!r}.')
    spec.require_plain()
    require_parquet()
    path = Path(out)
    make_directory(path)
    with sole_writer(path):
        remove_leftovers(path)
        yield RunDirectory(path, provenance, resume)


def load(directory: str | os.PathLike[str], *, model: ModelSpec | None = None) -> Evaluation:
    """The evaluation in a run directory, as `fle.evaluate` returned it.

    Args:
        directory: what was given to `fle.evaluate` as `out`, or to `Evaluation.save`.
        model: the hyperparameters of a model family of your own; not needed for those of fle.
    """
    path = Path(directory)
    if _has_result(path):
        return read_result(path, model)
    if not (path / RUN).exists():
        what = "has no run.json" if path.is_dir() else "is not there"
        raise FLEError(
            f"{path} is not a run directory: it {what}. Give what was given to fle.evaluate as "
            "`out`, or to Evaluation.save."
        )
    raise FLEError(
        f"The run in {path} is not finished. Repeat the call of fle.evaluate with out={str(path)!r}"
        " and it goes on from its last checkpoint."
    )


def save(evaluation: Evaluation, directory: str | os.PathLike[str]) -> None:
    """Write an evaluation to a run directory of its own."""
    with begin_run(directory, evaluation.provenance, evaluation.model, "latest") as run:
        run.finish(evaluation)


def _has_result(path: Path) -> bool:
    return (path / RESULT).exists() and (path / MODEL).exists()
