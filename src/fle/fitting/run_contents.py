"""What a finished run holds: an evaluation as files, and the files of anybody as an evaluation."""

import dataclasses
import math
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fle.errors import FLEError, ModelError
from fle.files import read_json, write_atomically, write_json
from fle.fitting.checkpoints import (
    RECORD,
    Arrays,
    DamagedFileError,
    TensorFile,
    prefixed,
    read_tensors,
    record_as_plain,
    record_from_plain,
    stacked,
    tensor_bytes,
    unstacked,
    without_prefix,
)
from fle.fitting.encoding import Encoder, Fitted
from fle.fitting.evaluation import FORMAT, Evaluation, LoggedData, Provenance, require_format
from fle.fitting.loop import blank_fit
from fle.fitting.measurement import BellmanErrors, Visits
from fle.fitting.problem import Problem, checked_gamma
from fle.fitting.replicates import Refits
from fle.manifests import require_form
from fle.models.law import Sizes
from fle.models.specs import ModelSpec, family, names, spec_from_plain
from fle.policies.answers import Coverage
from fle.recipe import Recipe, Resolved
from fle.returns.distances import Calibration
from fle.returns.opinions import SecondOpinions, figures_held

RUN = "run.json"
MODEL = "model.safetensors"
SAMPLES = "samples.parquet"
RESULT = "result.json"
REPLICATES = "replicates.safetensors"
# What `result.json` holds, by name.
FORM: dict[str, Any] = {
    "format": int,
    "run": str,
    "problem": Problem,
    "model": dict[str, Any],
    "recipe": Resolved,
    "sizes": Sizes,
    "fits": int,
    "return_names": list[str],
    "notes": list[str],
    "warnings": list[str],
    "records": list[RECORD],  # type: ignore[valid-type]
    "logged": {
        "rows": int,
        "episodes": int | None,
        "summary": str,
        "observation_names": list[str],
        "action_names": list[str],
        "action_labels": list[str],
        "missing": float,
        "content": str,
    },
    "coverage": Coverage | None,
    "second_opinions": SecondOpinions | None,
    "visits": Visits | None,
    "bellman": BellmanErrors | None,
    "calibration": Calibration | None,
    "released": bool,
    # For other programs: it follows from the rest.
    "verdict": dict[str, Any] | None,
}
# What `replicates.safetensors` says beside its arrays.
REFITS = {"run": str, "level": float, "resampled": str, "replicates": int}
# No hyperparameter that somebody would choose is larger: a stranger's may be, to fill the memory.
MOST = 10_000


def write_result(evaluation: Evaluation, directory: Path) -> None:
    """Everything `read_result` needs, and the samples for other programs."""
    run = evaluation.provenance.identity
    content = tensor_bytes(_arrays(evaluation), {"run": run})
    write_atomically(directory / MODEL, content)
    if find_spec("pyarrow") is not None:
        # Of a result that is withheld too: the fit itself lies beside them.
        samples = evaluation.anyway().returns.samples
        write_atomically(directory / SAMPLES, _parquet(samples, evaluation.return_names))
    if evaluation.refits is not None:
        write_atomically(directory / REPLICATES, _refit_bytes(evaluation.refits, run))
    write_json(directory / RESULT, _facts(evaluation, run))


def read_result(directory: Path, model: ModelSpec | None) -> Evaluation:
    """The evaluation that was written."""
    path = directory / RESULT
    provenance = Provenance.from_plain(read_json(directory / RUN), str(directory / RUN))
    facts = read_json(path)
    require_format(facts, str(path))
    if isinstance(facts.get("logged"), dict):
        # Runs that were written before.
        facts["logged"] = {"action_labels": [], "missing": 0.0, "content": ""} | facts["logged"]
    require_form(facts, FORM, str(path))
    arrays, header = _read_model(directory / MODEL)
    if not facts["run"] == header.get("run") == provenance.identity:
        raise DamagedFileError(
            f"{directory}: {RUN}, {RESULT} and {MODEL} are not of one run. Take all three from the "
            "same place."
        )
    try:
        evaluation = _evaluation(facts, arrays, provenance, model, directory)
        if "interval" not in provenance.settings:
            return evaluation
        return dataclasses.replace(evaluation, refits=_refits(evaluation, directory / REPLICATES))
    except FLEError:
        raise
    # What passes all checks and fails here was written by no version of fle.
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, MemoryError) as error:
        raise DamagedFileError(f"{path} is damaged: {type(error).__name__} {error}.") from error


def _read_model(path: Path) -> TensorFile:
    try:
        return read_tensors(path)
    except DamagedFileError as error:
        raise DamagedFileError(
            f'{error} Repeat the call of fle.evaluate with resume="previous": it goes on from a '
            "checkpoint and gives the same result."
        ) from error


def _refit_bytes(refits: Refits, run: str) -> bytes:
    every = tuple(fitted for fits in refits.fits for fitted in fits)
    arrays = {**prefixed("fits", stacked(every)), "counts": refits.counts}
    if refits.starts is not None:
        arrays["starts"] = refits.starts
    facts = {"level": refits.level, "resampled": refits.resampled, "replicates": len(refits.fits)}
    return tensor_bytes(arrays, {"run": run, **facts})


def _refits(evaluation: Evaluation, path: Path) -> Refits:
    """The replicates that were written, which must fit the evaluation."""
    arrays, facts = _read_model(path)
    require_form(facts, REFITS, str(path))
    number, kept, inputs = facts["replicates"], len(evaluation.fits), len(evaluation.initial_inputs)
    counts, starts = arrays["counts"], arrays.get("starts")
    right = counts.ndim == 2 and counts.dtype.kind in "iu" and len(counts) == number >= 1
    right = right and bool(np.all(counts >= 0)) and 0 < facts["level"] < 1
    if right and starts is not None:
        right = starts.dtype.kind in "iu" and starts.shape == (inputs,) and starts.min() >= 0
        right = right and bool(counts[:, starts].any(axis=1).all())
    if not right or facts["run"] != evaluation.provenance.identity:
        raise DamagedFileError(f"{path} is damaged, or of another run.")
    stored = without_prefix("fits", arrays)
    every = unstacked(evaluation.fits[0], stored, number * kept, str(path))
    fits = tuple(every[i : i + kept] for i in range(0, len(every), kept))
    return Refits(facts["level"], facts["resampled"], fits, counts, starts)


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


def _facts(evaluation: Evaluation, run: str) -> dict[str, Any]:
    logged = evaluation.logged
    return {
        "format": FORMAT,
        "run": run,
        "problem": dataclasses.asdict(evaluation.problem),
        "model": evaluation.model.as_plain(),
        "recipe": dataclasses.asdict(evaluation.recipe),
        "sizes": evaluation.encoder.sizes._asdict(),
        "fits": len(evaluation.fits),
        "return_names": list(evaluation.return_names),
        "notes": list(evaluation.notes),
        "warnings": list(evaluation.warnings),
        "records": [record_as_plain(record) for record in evaluation.records],
        "logged": {name: _plain(getattr(logged, name)) for name in FORM["logged"]},
        "coverage": None
        if evaluation.coverage is None
        else dataclasses.asdict(evaluation.coverage),
        "second_opinions": None
        if evaluation.second_opinions is None
        else evaluation.second_opinions.as_plain(),
        "visits": None if evaluation.visits is None else evaluation.visits.as_plain(),
        "bellman": None if evaluation.bellman is None else evaluation.bellman.as_plain(),
        "calibration": None
        if evaluation.calibration is None
        else evaluation.calibration.as_plain(),
        "released": evaluation.released,
        "verdict": evaluation.verdict.as_plain(),
    }


def _evaluation(
    facts: dict[str, Any],
    arrays: dict[str, np.ndarray],
    provenance: Provenance,
    model: ModelSpec | None,
    directory: Path,
) -> Evaluation:
    source = str(directory)
    sizes, problem = Sizes(**facts["sizes"]), Problem(**facts["problem"])
    checked_gamma(problem.gamma, problem.horizon)
    Recipe(**facts["recipe"])
    _require_counts(facts, sizes, problem, source)
    _require_shapes(arrays, sizes, source)
    fits, recipe = without_prefix("fits", arrays), Resolved(**facts["recipe"])
    spec = _spec(facts["model"], model, source)
    blank = _blank(spec, recipe, sizes, provenance.seed, fits, source)
    observed = without_prefix("logged", arrays)
    return Evaluation(
        problem=problem,
        model=spec,
        recipe=recipe,
        records=tuple(record_from_plain(record) for record in facts["records"]),
        notes=tuple(facts["notes"]),
        warnings=tuple(facts["warnings"]),
        return_names=tuple(facts["return_names"]),
        encoder=Encoder(sizes=sizes, **without_prefix("encoder", arrays)),
        fits=unstacked(blank, fits, facts["fits"], source),
        initial_inputs=arrays["initial/inputs"],
        initial_weights=arrays["initial/weights"],
        logged=LoggedData(
            **{name: _frozen(value) for name, value in facts["logged"].items()},
            returns=observed.get("returns"),
            complete=observed.get("complete"),
        ),
        coverage=_coverage(facts["coverage"]),
        provenance=provenance,
        second_opinions=_second_opinions(facts["second_opinions"], facts["return_names"], source),
        visits=None if facts["visits"] is None else Visits.from_plain(facts["visits"]),
        bellman=None if facts["bellman"] is None else BellmanErrors.from_plain(facts["bellman"]),
        calibration=None
        if facts["calibration"] is None
        else Calibration.from_plain(facts["calibration"]),
        released=facts["released"],
    )


def _require_counts(facts: dict[str, Any], sizes: Sizes, problem: Problem, source: str) -> None:
    """Numbers that are said twice must be the same, and none may be out of the world."""
    found = {
        "return_names": (len(facts["return_names"]), sizes.returns),
        "fits": (facts["fits"], problem.kept),
        **{
            f"{name} of record {place}": (len(record[name]), sizes.returns)
            for place, record in enumerate(facts["records"])
            for name in ("mean", "std", "cvar")
        },
    }
    for name, (given, expected) in found.items():
        if given != expected:
            raise DamagedFileError(f"{source} is damaged: expected {expected} {name}, got {given}.")
    counts = [*sizes[:3], facts["fits"], facts["logged"]["rows"]]
    if min(counts) < 1 or not facts["records"]:
        raise DamagedFileError(f"{source} is damaged: expected sizes of at least 1, got {counts}.")


def _require_shapes(arrays: Arrays, sizes: Sizes, source: str) -> None:
    """The arrays beside the fits have the sizes that are stated, and numbers one can count with."""
    weights = arrays["initial/weights"]
    shapes = {"initial/inputs": (len(weights), sizes.inputs), "initial/weights": (len(weights),)}
    for name, size, discrete in (
        ("observation", sizes.observation, sizes.discrete_observations),
        ("action", sizes.action, sizes.discrete_actions),
    ):
        # Codes need no centre, and models without units have one all the same.
        width = arrays[f"encoder/{name}_scale"].size if discrete else size
        shapes |= {f"encoder/{name}_centre": (width,), f"encoder/{name}_scale": (width,)}
    shapes |= {
        f"encoder/reward_{name}": (sizes.returns,)
        for name in ("unit", "centre", "origin", "spacing")
    }
    if "logged/returns" in arrays:
        episodes = len(arrays["logged/returns"])
        shapes |= {"logged/returns": (episodes, sizes.returns), "logged/complete": (episodes,)}
    for name, shape in shapes.items():
        found = arrays[name]
        if found.shape != shape or found.dtype.kind not in "fb" or not np.isfinite(found).all():
            raise DamagedFileError(
                f"{source} is damaged: expected {name} to be finite numbers {shape}, found "
                f"{found.dtype} {found.shape}."
            )
    units = [arrays[name] for name in shapes if name.endswith(("_scale", "_unit"))]
    if any(np.any(unit <= 0) for unit in units) or np.any(weights < 0) or not weights.sum() > 0:
        raise DamagedFileError(f"{source} is damaged: a scale or a weight is not positive.")


def _spec(plain: dict[str, Any], model: ModelSpec | None, source: str) -> ModelSpec:
    """The hyperparameters, of the types that the model wants."""
    if model is None and plain.get("name") in names():
        values = {name: value for name, value in plain.items() if name != "name"}
        require_form(values, family(str(plain["name"])), f"{source}: the model")
    return spec_from_plain(plain, model, source)


def _blank(
    spec: ModelSpec, recipe: Resolved, sizes: Sizes, seed: int, fits: Arrays, source: str
) -> Fitted:
    """A fit of the shapes that are stated, after it is known that the file holds as much."""
    stored = sum(math.prod(array.shape[1:]) for array in fits.values())
    values = [value for value in spec.values().values() if not isinstance(value, float)]
    for value in values:
        layers = value if isinstance(value, tuple) else (value,)
        widths = [width for width in layers if isinstance(width, int)]
        # Between two layers lies a matrix.
        least = max([0, *(a * b for a, b in pairwise([sizes.features, *widths]))])
        if max([0, *widths]) > MOST or (isinstance(value, tuple) and least > stored):
            raise ModelError(
                f"{source}: {spec} is larger than what the file holds, {stored:,} numbers a fit."
            )
    return blank_fit(spec, recipe, sizes, seed)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _coverage(plain: dict[str, Any] | None) -> Coverage | None:
    return None if plain is None else Coverage(**{**plain, "warnings": tuple(plain["warnings"])})


def _second_opinions(
    plain: dict[str, Any] | None, names: list[str], source: str
) -> SecondOpinions | None:
    if plain is None:
        return None
    every = [*plain["own"], *plain["opinions"]]
    known = all(
        one["coordinate"] in names and set(one["figures"]) <= set(figures_held()) for one in every
    )
    if not known or any("std" not in one["figures"] for one in plain["own"]):
        raise DamagedFileError(f"{source} is damaged: second opinions of another evaluation.")
    return SecondOpinions.from_plain(plain)


def _parquet(samples: np.ndarray, names: tuple[str, ...]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: samples[:, i] for i, name in enumerate(names)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()
