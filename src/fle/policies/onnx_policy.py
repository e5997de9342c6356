"""What the outputs of an ONNX policy mean: probabilities, logits, an action, a mean with a std."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fle.errors import PolicyError, SettingsError
from fle.files import parsed_json
from fle.manifests import misfit
from fle.policies.action_table import Array
from fle.policies.function_policies import (
    Deterministic,
    Normal,
    Probabilities,
    stacked_mean_and_std,
)
from fle.policies.onnx_session import OnnxSession, read_onnx

OnnxPolicy = Probabilities | Deterministic | Normal

ROLES = ("probs", "logits", "action", "mean", "std", "log_std")
# The first set that is there counts: what is random before what is greedy.
COMBINATIONS = (("probs",), ("logits",), ("mean", "std"), ("mean", "log_std"), ("action",))
# Names that exporters give.
ALIASES = {
    "probabilities": "probs",
    "output_probability": "probs",
    "actions": "action",
    "label": "action",
    "output_label": "action",
    "variable": "action",
}
MOST_ACTIONS = 100_000
# Under which a file may say what the columns of its observations are called.
NAMES = "observation_names"


def load_onnx(
    path: Path, input_name: str | None, output: str | Mapping[str, str] | None, timeout: float
) -> OnnxPolicy:
    """The policy of a file, in the kind that its outputs call for."""
    content, model = read_onnx(path)
    session = OnnxSession(content, str(path), input_name, timeout)
    types = session.output_types
    roles = choose_outputs(str(path), tuple(types), output)
    policy = _policy_of(path, session, roles, model)
    return dataclasses.replace(policy, observation_names=_observation_names(model, str(path)))


def _policy_of(path: Path, session: OnnxSession, roles: dict[str, str], model: Any) -> OnnxPolicy:
    names = tuple(roles.values())

    def ask(convert: Callable[[Sequence[Any]], Array]) -> Callable[[Array], Array]:
        return lambda observations: session.answers(observations, names, convert)

    if "probs" in roles:
        codes = _class_codes(model, str(path))
        return Probabilities(ask(lambda raw: _probabilities(raw[0], codes, str(path))))
    if "logits" in roles:
        return Probabilities(ask(lambda raw: _softmax(_numbers(raw[0], str(path)))))
    if "action" in roles:
        return Deterministic(ask(lambda raw: _single_column(_numbers(raw[0], str(path)))))

    def convert(raw: Sequence[Any]) -> Array:
        mean, std = (_numbers(part, str(path)).astype(np.float64) for part in raw)
        with np.errstate(over="ignore"):
            std = np.exp(std) if "log_std" in roles else std
        try:
            return stacked_mean_and_std(mean, std)
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from error

    both = ask(convert)

    def mean_and_std(observations: Array) -> tuple[Array, Array]:
        answer = both(observations)
        return answer[:, 0], answer[:, 1]

    return Normal(mean_and_std)


def _observation_names(model: Any, name: str) -> tuple[str, ...]:
    """What the file says of its input: a JSON list under `observation_names` in its metadata."""
    for entry in model.metadata_props:
        if entry.key == NAMES:
            try:
                found = parsed_json(entry.value)
            except ValueError as error:
                raise PolicyError(f"{name}: {NAMES} in its metadata: {error}") from error
            problem = misfit(found, list[str], NAMES)
            if problem is not None:
                raise PolicyError(f"{name}: in its metadata, {problem}")
            return tuple(found)
    return ()


def choose_outputs(
    name: str, available: Sequence[str], output: str | Mapping[str, str] | None
) -> dict[str, str]:
    """Which output plays which role, from the user's mapping or from the names themselves."""
    if output is not None:
        return _mapped(name, available, output)
    by_role: dict[str, str] = {}
    for entry in available:
        role = entry if entry in ROLES else ALIASES.get(entry)
        if role is not None:
            by_role.setdefault(role, entry)
    for combination in COMBINATIONS:
        if all(role in by_role for role in combination):
            return {role: by_role[role] for role in combination}
    if len(available) == 1 and not by_role:
        # d3rlpy and others write one greedy action under a name of their own.
        return {"action": available[0]}
    raise PolicyError(
        f"{name}: its outputs are {', '.join(available)}; expected probs, logits, action, or mean"
        ' with std or log_std. Say which is which, as in output="logits=NAME"'
    )


def _mapped(name: str, available: Sequence[str], output: str | Mapping[str, str]) -> dict[str, str]:
    mapping = _parsed(output, available) if isinstance(output, str) else dict(output)
    for role, entry in mapping.items():
        if role not in ROLES:
            near = difflib.get_close_matches(role, ROLES, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SettingsError(f"output: {role!r} is not one of {', '.join(ROLES)}{hint}")
        if entry not in available:
            raise PolicyError(
                f"{name}: no output is called {entry!r}; it has {', '.join(available)}"
            )
    for combination in COMBINATIONS:
        if set(combination) == set(mapping):
            return {role: mapping[role] for role in combination}
    raise SettingsError(
        f"output: {', '.join(mapping) or 'nothing'} does not make a policy; expected one of"
        f" {', '.join(' with '.join(combination) for combination in COMBINATIONS)}"
    )


def _parsed(output: str, available: Sequence[str]) -> dict[str, str]:
    """ "logits=output_0", "mean=a,std=b", or a role alone for the output of that name."""
    mapping = {}
    for part in output.split(","):
        role, equals, entry = (piece.strip() for piece in part.partition("="))
        if role in mapping:
            raise SettingsError(f"output: {role!r} is given twice in {output!r}")
        only = available[0] if len(available) == 1 else role
        mapping[role] = entry if equals else (role if role in available else only)
    return mapping


def _numbers(raw: Any, name: str) -> Array:
    array = np.asarray(raw) if isinstance(raw, np.ndarray) else np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise PolicyError(
            f"{name}: an output is {type(raw).__name__} of {array.dtype}; expected a tensor of"
            " numbers"
        )
    return array


def _single_column(actions: Array) -> Array:
    """(n, 1) -> (n,), which is right for discrete and continuous actions alike."""
    return actions[:, 0] if actions.ndim == 2 and actions.shape[1] == 1 else actions


def _softmax(logits: Array) -> Array:
    exact = logits.astype(np.float64)
    if exact.ndim != 2 or exact.shape[1] == 0:
        return exact
    # Infinities that make no sense become NaN, which the check of probabilities names by row.
    with np.errstate(invalid="ignore"):
        powers = np.exp(exact - exact.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)


def _probabilities(raw: Any, codes: Array | None, name: str) -> Array:
    """(n, A) by action code, from a tensor or from the dictionaries of a ZipMap."""
    if isinstance(raw, list) and raw and isinstance(raw[0], dict):
        labels = list(raw[0])
        if not all(isinstance(label, int) for label in labels):
            raise PolicyError(f"{name}: classes are {labels[:3]}; expected integer action codes")
        codes = np.asarray(labels)
        values = np.asarray([[row[label] for label in labels] for row in raw])
    else:
        values = _numbers(raw, name)
    if codes is None or values.ndim != 2 or values.shape[1] != len(codes):
        return values
    if codes.min() < 0 or codes.max() >= MOST_ACTIONS or len(np.unique(codes)) < len(codes):
        raise PolicyError(f"{name}: classes are {codes[:5]}; expected distinct codes from 0 on")
    by_action = np.zeros((len(values), codes.max() + 1), dtype=values.dtype)
    by_action[:, codes] = values
    return by_action


def _class_codes(model: Any, name: str) -> Array | None:
    """The action code of each column of a scikit-learn classifier, None if nothing says so."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "classlabels_strings" and attribute.strings:
                raise PolicyError(
                    f"{name}: its classes are strings, such as {attribute.strings[0]!r}; train the"
                    " classifier on integer action codes"
                )
            if attribute.name in ("classlabels_int64s", "classlabels_ints") and attribute.ints:
                return np.asarray(attribute.ints)
    import onnx

    for tensor in model.graph.initializer:
        if tensor.name == "classes":
            classes = onnx.numpy_helper.to_array(tensor)
            if classes.dtype.kind in "iu" and classes.size:
                return classes.reshape(-1)
    return None
