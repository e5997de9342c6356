"""From options to a call of `fle.evaluate`."""

import argparse
import dataclasses
import types
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fle.cli.compilation import keep_compiled
from fle.cli.inputs import Target
from fle.cli.messages import UsageError
from fle.data import Dataset
from fle.errors import nearest

if TYPE_CHECKING:
    from fle.fitting import Evaluation, Training
    from fle.models import ModelSpec


def check_problem(options: argparse.Namespace) -> None:
    """Refuse what can be refused before any file is read."""
    if options.gamma is None and options.horizon is None:
        raise UsageError("--gamma (below 1) or --horizon is missing; both together are allowed")
    if options.gamma == 1 and options.horizon is None:
        raise UsageError(
            "--gamma 1 without a horizon has no finite return in general; give --horizon, or a"
            " gamma below 1"
        )
    if options.horizon is not None and options.stages is not None:
        raise UsageError("--stages is for discounted problems; with --horizon there is one a step")
    if options.model == "auto" and (options.hyperparameter or options.training):
        raise UsageError(
            "--hyperparameter and --training depend on the model; name it, for example --model gmm"
        )


def check_weights(options: argparse.Namespace, data: Dataset) -> None:
    """Refuse weights that do not fit the rewards."""
    if options.weights is None:
        return
    if data.return_dim == 1:
        raise UsageError("--weights is for several rewards, and the data has one; leave it out")
    if len(options.weights) != data.return_dim:
        names = ", ".join(data.reward_names)
        raise UsageError(
            f"--weights: expected {data.return_dim} numbers, for {names}; got"
            f" {len(options.weights)}"
        )


def fit(
    data: Dataset, target: Target, options: argparse.Namespace, out: Path | None
) -> "Evaluation":
    """Evaluate one policy."""
    # Here and not above: JAX takes a second to import, and most mistakes are found before.
    from fle.fitting import evaluate

    keep_compiled()
    model = _model(options)
    if options.rows == "step" and data.steps is None:
        data = data.with_steps()
    return evaluate(
        data,
        target.policy,
        gamma=options.gamma,
        horizon=options.horizon,
        model="auto" if model is None else model,
        rows=options.rows,
        stages=options.stages,
        training=None if model is None else _training(options, model, data),
        action_draws=options.action_draws,
        seed=options.seed,
        out=out,
        resume=options.resume,
    )


def check_model(options: argparse.Namespace) -> None:
    """Refuse wrong hyperparameters and training settings before the policy is asked."""
    model = _model(options)
    if model is not None and options.training:
        from fle.fitting import Training

        given = _checked(Training, options.training, "training")
        dataclasses.replace(Training.finite_horizon(), **given)


def _model(options: argparse.Namespace) -> "ModelSpec | None":
    """None for auto."""
    if options.model == "auto":
        return None
    from fle.fitting.specs import known_specs

    family = known_specs().get(options.model)
    if family is None:
        raise UsageError(f"--model: this version of fle has no {options.model}")
    return _built(family, options.hyperparameter, "hyperparameter")


def _training(options: argparse.Namespace, model: "ModelSpec", data: Dataset) -> "Training | None":
    """The defaults of the problem and the model, with the settings that were given."""
    if not options.training:
        return None
    from fle.fitting import Training
    from fle.fitting.stages import number_of_stages
    from fle.models.base import Tuning

    if options.horizon is not None:
        usual = Training.finite_horizon()
    else:
        stages = options.stages or number_of_stages(data, options.gamma)[0]
        usual = Training.discounted(stages, data)
    usual = usual.tuned(getattr(model, "tuning", Tuning()))
    return dataclasses.replace(usual, **_checked(Training, options.training, "training"))


def _built(family: Any, values: dict[str, Any], option: str) -> Any:
    checked = _checked(family, values, option)
    for field in dataclasses.fields(family):
        open_ended = field.default is field.default_factory is dataclasses.MISSING
        if open_ended and field.name not in checked:
            raise UsageError(f"--{option} {field.name}=... is missing: the model needs it")
    return family(**checked)


def _checked(family: Any, values: dict[str, Any], option: str) -> dict[str, Any]:
    """Values whose names and types a dataclass knows."""
    known = {field.name: field.type for field in dataclasses.fields(family)}
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise UsageError(
                f"--{option}: {family.__name__} has no {name!r}{nearest(name, known)}; it has"
                f" {', '.join(known)}"
            )
        checked[name] = tuple(value) if isinstance(value, list) else value
        if not _fits(checked[name], known[name]):
            kind = known[name]
            expected = kind.__name__ if isinstance(kind, type) else str(kind)
            raise UsageError(f"--{option} {name}: expected {expected}, got {value!r}")
    return checked


def _fits(value: Any, hint: Any) -> bool:
    """Whether a plain value is of an annotated type; types that are not plain are let through."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return value in parts
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if hint in (bool, str, type(None)):
        return isinstance(value, hint)
    return True
