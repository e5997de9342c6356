"""Run directories: one writer, what a run was begun with, where it goes on, and its result."""

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fle.errors import FLEError, SettingsError
from fle.files import (
    make_directory,
    read_json,
    remove_leftovers,
    sole_writer,
    write_atomically,
    write_json,
)
from fle.fitting.checkpoints import (
    Checkpoints,
    DamagedFileError,
    Resume,
    prefixed,
    read_tensors,
    record_as_plain,
    record_from_plain,
    stacked,
    tensor_bytes,
    unstacked,
    without_prefix,
)
from fle.fitting.encoding import Encoder
from fle.fitting.evaluation import FORMAT, Evaluation, LoggedData, Provenance
from fle.fitting.loop import blank_fit
from fle.fitting.problem import Problem
from fle.models.law import Sizes
from fle.models.specs import ModelSpec, spec_from_plain
from fle.policies.answers import Coverage
from fle.recipe import Resolved

CHECKPOINTS = "checkpoints"
RUN = "run.json"
MODEL = "model.safetensors"
SAMPLES = "samples.parquet"
# Written last: a run that has it is finished.
RESULT = "result.json"
# All that stands in a run directory, with what the command line adds.
WRITTEN = (
    r"(run|result|context)\.json|model\.safetensors|samples\.parquet"
    r"|run\.toml|data\.arrow|report\.html"
)


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
        remove_leftovers(path, WRITTEN)
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


def write_result(evaluation: Evaluation, directory: Path) -> None:
    """Everything `read_result` needs, and the samples for other programs."""
    run = evaluation.provenance.identity
    content, sha256 = tensor_bytes(_arrays(evaluation), {"run": run})
    write_atomically(directory / MODEL, content)
    samples = evaluation.returns.samples
    write_atomically(directory / SAMPLES, _parquet(samples, evaluation.return_names))
    write_json(directory / RESULT, _facts(evaluation, run, sha256))


def read_result(directory: Path, model: ModelSpec | None) -> Evaluation:
    """The evaluation that was written."""
    provenance = Provenance.from_plain(read_json(directory / RUN), str(directory / RUN))
    path = directory / RESULT
    facts = read_json(path)
    if facts.get("format") != FORMAT:
        raise FLEError(
            f"{path}: expected format {FORMAT}, found {facts.get('format')!r}. Use the version of "
            "fle that wrote it."
        )
    arrays, _, sha256 = _read_model(directory / MODEL)
    if (facts.get("run"), facts.get("model_sha256")) != (provenance.identity, sha256):
        raise DamagedFileError(
            f"{directory}: {RUN}, {RESULT} and {MODEL} are not of one run, by their hashes "
            "(sha256). Take all three from the same place."
        )
    try:
        return _evaluation(facts, arrays, provenance, model, directory)
    except (KeyError, TypeError, IndexError) as error:
        raise FLEError(f"{path} is damaged: {type(error).__name__} {error}.") from error


def _read_model(path: Path) -> Any:
    try:
        return read_tensors(path)
    except DamagedFileError as error:
        raise DamagedFileError(
            f'{error} Repeat the call of fle.evaluate with resume="previous": it goes on from a '
            "checkpoint and gives the same result."
        ) from error


def _arrays(evaluation: Evaluation) -> dict[str, np.ndarray]:
    logged = evaluation.logged
    observed = {}
    if logged.returns is not None and logged.complete is not None:
        observed = {"returns": logged.returns, "complete": logged.complete}
    initial = {"inputs": evaluation.initial_inputs, "weights": evaluation.initial_weights}
    return {
        **prefixed("fits", stacked(evaluation.fits)),
        **prefixed("encoder", _encoder_arrays(evaluation.encoder)),
        **prefixed("initial", initial),
        **prefixed("logged", observed),
    }


def _encoder_arrays(encoder: Encoder) -> dict[str, np.ndarray]:
    values = {field.name: getattr(encoder, field.name) for field in dataclasses.fields(encoder)}
    return {name: value for name, value in values.items() if name != "sizes"}


def _facts(evaluation: Evaluation, run: str, sha256: str) -> dict[str, Any]:
    logged = evaluation.logged
    return {
        "format": FORMAT,
        "run": run,
        "model_sha256": sha256,
        "problem": dataclasses.asdict(evaluation.problem),
        "model": evaluation.model.as_plain(),
        "recipe": dataclasses.asdict(evaluation.recipe),
        "sizes": evaluation.encoder.sizes._asdict(),
        "fits": len(evaluation.fits),
        "return_names": list(evaluation.return_names),
        "notes": list(evaluation.notes),
        "warnings": list(evaluation.warnings),
        "records": [record_as_plain(record) for record in evaluation.records],
        "logged": {"rows": logged.rows, "episodes": logged.episodes, "summary": logged.summary},
        "coverage": None
        if evaluation.coverage is None
        else dataclasses.asdict(evaluation.coverage),
    }


def _evaluation(
    facts: dict[str, Any],
    arrays: dict[str, np.ndarray],
    provenance: Provenance,
    model: ModelSpec | None,
    directory: Path,
) -> Evaluation:
    source = str(directory)
    spec = spec_from_plain(facts["model"], model, source)
    encoder = Encoder(sizes=Sizes(**facts["sizes"]), **without_prefix("encoder", arrays))
    recipe = Resolved(**facts["recipe"])
    blank = blank_fit(spec, recipe, encoder.sizes, provenance.seed)
    names = tuple(facts["return_names"])
    if len(names) != encoder.sizes.returns:
        raise DamagedFileError(
            f"{source} is damaged: expected {encoder.sizes.returns} return_names, got {len(names)}."
        )
    observed = without_prefix("logged", arrays)
    return Evaluation(
        problem=Problem(**facts["problem"]),
        model=spec,
        recipe=recipe,
        records=tuple(record_from_plain(record) for record in facts["records"]),
        notes=tuple(facts["notes"]),
        warnings=tuple(facts["warnings"]),
        return_names=names,
        encoder=encoder,
        fits=unstacked(blank, without_prefix("fits", arrays), facts["fits"], source),
        initial_inputs=arrays["initial/inputs"],
        initial_weights=arrays["initial/weights"],
        logged=LoggedData(
            **facts["logged"], returns=observed.get("returns"), complete=observed.get("complete")
        ),
        coverage=_coverage(facts["coverage"]),
        provenance=provenance,
    )


def _coverage(plain: dict[str, Any] | None) -> Coverage | None:
    return None if plain is None else Coverage(**{**plain, "warnings": tuple(plain["warnings"])})


def require_parquet() -> None:
    """Refuse to begin what could not be finished."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            f'A run directory holds {SAMPLES}, which needs pyarrow: pip install "fle[files]".'
        ) from error


def _parquet(samples: np.ndarray, names: tuple[str, ...]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: samples[:, i] for i, name in enumerate(names)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()
