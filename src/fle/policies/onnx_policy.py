"""What an ONNX policy's outputs mean, and a stranger's in a process of its own, with limits."""

import dataclasses
import difflib
import json
import math
import os
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fle.errors import FLEWarning, PolicyError, SettingsError
from fle.files import parsed_json
from fle.manifests import misfit
from fle.policies.action_table import Array
from fle.policies.function_policies import (
    Deadline,
    Deterministic,
    Normal,
    Probabilities,
    stacked_mean_and_std,
)
from fle.policies.onnx_session import OnnxSession, import_all, read_onnx

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
ERRORS = {kind.__name__: kind for kind in (PolicyError, SettingsError)}
# What the other process may take to start, beside the time of the policy.
STARTING_SECONDS = 60.0
# All that the other process is told of this one's environment.
ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL")
LENGTH_BYTES, MOST_HEADER = 8, 2**20


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


class OnnxProcess:
    """A policy in a process of its own, which serves all batches and ends with this object.

    The file is parsed and run there, with `memory` bytes and `timeout` seconds, and without the
    right to write files. What comes back are arrays and texts, never objects.
    """

    def __init__(
        self,
        path: Path,
        input_name: str | None,
        output: str | Mapping[str, str] | None,
        timeout: float,
        memory: int,
    ) -> None:
        self._name, self._memory = str(path), memory
        code = "from fle.policies.onnx_policy import serve; serve()"
        # -P: what lies in the current folder is not imported, whatever it is called.
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment(),
        )
        weakref.finalize(self, _end, self._process)
        self._deadline = Deadline(self._name, STARTING_SECONDS + timeout)
        output = output if output is None or isinstance(output, str) else dict(output)
        given = [self._name, input_name, output, timeout, memory]
        answer, _ = self._exchange({"given": given}, [])
        self.kind: str = answer["kind"]
        self._names = tuple(str(name) for name in answer[NAMES])
        self._classes = tuple(answer[LABELS])

    def policy(self) -> OnnxPolicy:
        """The policy, in the kind that its outputs call for."""
        if self.kind == Normal.__name__:
            return Normal(self._mean_and_std, self._names)
        if self.kind == Probabilities.__name__:
            return Probabilities(self._single, self._names, self._classes)
        return Deterministic(self._single, self._names)

    def _single(self, observations: Array) -> Array:
        return self._exchange({}, [observations])[1][0]

    def _mean_and_std(self, observations: Array) -> tuple[Array, Array]:
        mean, std = self._exchange({}, [observations])[1]
        return mean, std

    def _exchange(
        self, header: dict[str, Any], arrays: Sequence[Array]
    ) -> tuple[dict[str, Any], list[Array]]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None  # noqa: S101
        assert back is not None  # noqa: S101

        def work() -> tuple[dict[str, Any], list[Array]]:
            _send(to, header, arrays)
            return _receive(back, self._memory)

        try:
            answer, found = self._deadline.run(work, self._process.kill)
        except (EOFError, OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, PolicyError):
                raise
            self._process.kill()
            raise PolicyError(
                f"{self._name}: the policy's process ended without an answer"
                f" (code {self._process.wait()}); it may need more than its"
                f" {self._memory / 2**30:.3g} GiB of memory (`memory`)"
            ) from error
        for text in answer.get("warnings", ()):
            warnings.warn(str(text), FLEWarning, stacklevel=4)
        if "error" in answer:
            raise ERRORS.get(answer["error"], PolicyError)(str(answer["text"]))
        return answer, found


def serve() -> None:
    """The other process: load the file that is named first, then answer until nobody asks."""
    to, back = sys.stdout.buffer, sys.stdin.buffer
    header, _ = _receive(back, MOST_HEADER)
    path, input_name, output, timeout, memory = header["given"]
    policy: OnnxPolicy | None = None
    arrays: list[Array] = []
    while True:
        answer: dict[str, Any] = {}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FLEWarning)
            try:
                if policy is None:
                    _limit(memory)
                    policy = load_onnx(Path(path), input_name, output, timeout)
                    named = {NAMES: policy.observation_names, LABELS: policy.classes}
                    answer, parts = {"kind": type(policy).__name__, **named}, []
                else:
                    said = policy.function(arrays[0])
                    parts = list(said) if isinstance(said, tuple) else [said]
            # Whatever a stranger's file brings about is told in words.
            except Exception as error:
                text = (
                    str(error)
                    if isinstance(error, PolicyError | SettingsError)
                    else (f"{path}: {type(error).__name__}: {str(error)[:200]}")
                )
                answer, parts = {"error": type(error).__name__, "text": text}, []
        answer["warnings"] = [str(entry.message) for entry in caught]
        _send(to, answer, parts)
        if policy is None:
            return
        try:
            _, arrays = _receive(back, sys.maxsize)
        except EOFError:
            return


def _limit(memory: int) -> None:
    """Memory, files and core dumps; Windows has no such limits."""
    # Before the limit of what may be written, and so that it counts the policy alone.
    import_all()
    if sys.platform == "win32":
        return
    import resource

    for which, most in (
        (resource.RLIMIT_DATA, memory),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(which)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (allowed, allowed))


def _environment() -> dict[str, str]:
    known = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    package = str(Path(__file__).parents[2])
    paths = [package, known["PYTHONPATH"]] if "PYTHONPATH" in known else [package]
    return {**known, "PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def _send(to: BinaryIO | Any, header: dict[str, Any], arrays: Sequence[Array]) -> None:
    plain = [np.ascontiguousarray(array) for array in arrays]
    shapes = [[array.dtype.str, *array.shape] for array in plain]
    text = json.dumps({**header, "arrays": shapes}).encode()
    to.write(len(text).to_bytes(LENGTH_BYTES, "little") + text)
    for array in plain:
        to.write(array.data.cast("B") if array.size else b"")
    to.flush()


def _receive(back: BinaryIO | Any, most: int) -> tuple[dict[str, Any], list[Array]]:
    length = int.from_bytes(_exactly(back, LENGTH_BYTES), "little")
    if length > MOST_HEADER:
        raise ValueError(f"a header of {length} bytes")
    header = json.loads(_exactly(back, length))
    arrays = []
    for kind, *shape in header["arrays"]:
        dtype = np.dtype(kind)
        size = dtype.itemsize * math.prod(shape)
        if dtype.kind not in "biuf" or not 0 <= size <= most:
            raise ValueError(f"an array of {size} bytes")
        content = _exactly(back, size)
        arrays.append(np.frombuffer(content, dtype).reshape(shape))
    return header, arrays


def _exactly(back: BinaryIO | Any, size: int) -> bytes:
    content: bytes = back.read(size)
    if len(content) < size:
        raise EOFError
    return content
