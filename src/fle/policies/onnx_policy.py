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
# Under which a file may say what the columns of its observations, and of its answer, are called.
NAMES, LABELS = "observation_names", "action_labels"


def load_onnx(
    path: Path, input_name: str | None, output: str | Mapping[str, str] | None, timeout: float
) -> OnnxPolicy:
    """The policy of a file, in the kind that its outputs call for."""
    content, model = read_onnx(path)
    session = OnnxSession(content, str(path), input_name, timeout)
    types = session.output_types
    roles = choose_outputs(str(path), tuple(types), output)
    policy = _policy_of(path, session, roles, model)
    return dataclasses.replace(policy, observation_names=_stated(model, NAMES, str(path)))


def _policy_of(path: Path, session: OnnxSession, roles: dict[str, str], model: Any) -> OnnxPolicy:
    names = tuple(roles.values())

    def ask(convert: Callable[[Sequence[Any]], Array]) -> Callable[[Array], Array]:
        return lambda observations: session.answers(observations, names, convert)

    classes = _stated(model, LABELS, str(path)) or _classes(model)
    if "probs" in roles:
        return Probabilities(
            ask(lambda raw: _probabilities(raw[0], classes, str(path))), classes=classes
        )
    if "logits" in roles:
        stated = _stated(model, LABELS, str(path))
        return Probabilities(ask(lambda raw: _softmax(_numbers(raw[0], str(path)))), classes=stated)
    if session.output_types[names[0]] == "tensor(string)":
        return Probabilities(ask(lambda raw: _chosen(raw[0], classes, str(path))), classes=classes)
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


def _stated(model: Any, key: str, name: str) -> tuple[str, ...]:
    """What a file says of its columns: a JSON list of names under a key of its metadata."""
    for entry in model.metadata_props:
        if entry.key == key:
            try:
                found = parsed_json(entry.value)
            except ValueError as error:
                raise PolicyError(f"{name}: {key} in its metadata: {error}") from error
            problem = misfit(found, list[str], key)
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


def _probabilities(raw: Any, classes: tuple[Any, ...], name: str) -> Array:
    """(n, K) by class, from a tensor or from the dictionaries of a ZipMap."""
    if isinstance(raw, list) and raw and isinstance(raw[0], dict):
        if set(classes) != set(raw[0]):
            raise PolicyError(
                f"{name}: the classes of its dictionaries are {list(raw[0])[:3]}, and those of its"
                f" classifier {list(classes)[:3]}; expected the same"
            )
        return np.asarray([[row[label] for label in classes] for row in raw])
    return _numbers(raw, name)


def _chosen(raw: Any, classes: tuple[Any, ...], name: str) -> Array:
    """(n, K), 1 for the class that was answered by its name."""
    answer = np.asarray(raw).reshape(len(raw), -1)
    if not classes or answer.shape[1] != 1:
        raise PolicyError(
            f"{name}: its answer is text of shape {np.shape(raw)}, and it does not say which"
            " classes there are; expected those of a classifier: map its probabilities instead, as"
            ' in output="probs=NAME"'
        )
    return (answer == np.asarray(classes, dtype=object)).astype(np.float64)


def _classes(model: Any) -> tuple[Any, ...]:
    """The classes of a scikit-learn classifier, in the order of its columns; none if unknown."""
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "classlabels_strings" and attribute.strings:
                return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
            if attribute.name in ("classlabels_int64s", "classlabels_ints") and attribute.ints:
                return tuple(int(code) for code in attribute.ints)
    import onnx

    for tensor in model.graph.initializer:
        if tensor.name == "classes":
            found = onnx.numpy_helper.to_array(tensor).reshape(-1)
            if found.dtype.kind in "iu" and found.size:
                return tuple(found.tolist())
            if found.dtype.kind in "OSU" and found.size:
                return tuple(
                    item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)
                    for item in found.tolist()
                )
    return ()
