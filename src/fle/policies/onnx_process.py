"""A stranger's ONNX policy in a process of its own, with limits of memory and time."""

import json
import math
import os
import subprocess
import sys
import warnings
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from fle.errors import FLEWarning, PolicyError, SettingsError
from fle.policies.action_table import Array
from fle.policies.function_policies import Deadline, Deterministic, Normal, Probabilities
from fle.policies.onnx_policy import LABELS, NAMES, OnnxPolicy, load_onnx
from fle.policies.onnx_session import import_all

ERRORS = {kind.__name__: kind for kind in (PolicyError, SettingsError)}
# What the other process may take to start, beside the time of the policy.
STARTING_SECONDS = 60.0
# All that the other process is told of this one's environment.
ENVIRONMENT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "SYSTEMROOT", "LANG", "LC_ALL")
LENGTH_BYTES, MOST_HEADER = 8, 2**20


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
        code = "from fle.policies.onnx_process import serve; serve()"
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
