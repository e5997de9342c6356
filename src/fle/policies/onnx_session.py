"""A stranger's ONNX file: checked, since it may hold anything, then run within a time limit."""

import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from fle.errors import FLEError, FLEWarning, PolicyError, SettingsError, install
from fle.policies.action_table import Array
from fle.policies.function_policies import Deadline

Result = TypeVar("Result")
# What a model said for some rows, one entry per output asked for -> one array with those rows.
Converter = Callable[[Sequence[Any]], Array]

CHUNK = 4096
DTYPES: dict[str, type] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}
MOST_BYTES = 256 * 2**20
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
LOOPS = ("Loop", "Scan", "SequenceMap")
RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)
INSTALL = f"ONNX policies need two packages: {install('onnx')}"


def read_onnx(path: Path) -> tuple[bytes, Any]:
    """The bytes of a checked file, and the parsed model."""
    if not path.is_file():
        raise PolicyError(f"{path}: no such file; expected an ONNX policy")
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise PolicyError(
                    f"{path}: {size / 2**20:.0f} MiB; expected an ONNX policy of at most"
                    f" {MOST_BYTES // 2**20} MiB"
                )
            content = file.read(MOST_BYTES)
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror})") from error
    return content, checked_model(content, str(path))


def checked_model(content: bytes, name: str) -> Any:
    """The parsed model, if everything it holds is allowed."""
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise PolicyError(f"{name}: {INSTALL}") from error
    try:
        model = onnx.ModelProto.FromString(content)
    except (DecodeError, RuntimeError, ValueError) as error:
        raise PolicyError(f"{name}: not an ONNX file, or a torn one ({error})") from error
    if model.ir_version < 1 or not model.opset_import or not model.graph.output:
        raise PolicyError(
            f"{name}: not an ONNX file, or a torn one: expected a version, an operator set and a"
            " graph with outputs"
        )
    if model.functions:
        raise PolicyError(
            f"{name}: holds functions of its own, such as {model.functions[0].name!r}; inline them"
            " with onnx.inliner.inline_local_functions"
        )
    for message in _messages(model):
        kind = message.DESCRIPTOR.name
        if kind == "TensorProto" and (message.data_location or message.external_data):
            raise PolicyError(
                f"{name}: tensor {message.name!r} lies in another file; save the policy as one file"
                " (external_data=False in torch.onnx.export)"
            )
        if kind == "NodeProto":
            _check_node(message, name)
        if kind == "OperatorSetIdProto":
            _check_domain(message.domain, name)
    try:
        onnx.checker.check_model(content)
    except Exception as error:
        raise PolicyError(f"{name}: not a valid ONNX file: {first_line(error)}") from error
    return model


def first_line(error: BaseException) -> str:
    """The start of a message that may run to pages."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def _messages(model: Any) -> Iterator[Any]:
    """The model and all it contains, whatever field that is in, so nothing can hide."""
    from google.protobuf.message import Message

    waiting = [model]
    while waiting:
        message = waiting.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if isinstance(value, Message) else value)


def _check_domain(domain: str, name: str) -> None:
    if domain not in DOMAINS:
        raise PolicyError(
            f"{name}: uses operators of the domain {domain!r}; expected standard ONNX operators"
            " only (ai.onnx, ai.onnx.ml)"
        )


def _check_node(node: Any, name: str) -> None:
    _check_domain(node.domain, name)
    if node.op_type in LOOPS:
        raise PolicyError(
            f"{name}: has a {node.op_type}, which may never end; export the policy without loops"
        )
    # The third input of Dropout turns it on.
    switched_on = node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])
    if node.op_type in RANDOM or switched_on:
        raise PolicyError(
            f"{name}: draws at random ({node.op_type}), so no run could be repeated; export the"
            " policy in evaluation mode, with outputs probs, logits, or mean and std"
        )
    training = [a for a in node.attribute if a.name == "training_mode" and a.i]
    if node.op_type == "BatchNormalization" and training:
        raise PolicyError(
            f"{name}: a BatchNormalization is in training mode, so an answer would depend on the"
            " rest of the batch; export the policy in evaluation mode"
        )


@dataclass(frozen=True)
class Port:
    """An input of a model; open dimensions are None."""

    name: str
    type: str
    shape: tuple[int | None, ...]


class OnnxSession:
    """A model in onnxruntime, loaded from bytes, on one thread, without custom operators.

    `timeout` is the number of seconds that all runs may take together.
    """

    def __init__(self, content: bytes, name: str, input_name: str | None, timeout: float) -> None:
        if not (isinstance(timeout, int | float) and 0 < timeout < math.inf):
            raise SettingsError(f"timeout: expected a positive number of seconds, got {timeout!r}")
        self.name = name
        self._deadline = Deadline(name, timeout)
        self._consistent = False
        self._runtime = _import_runtime(name)
        self._session, inputs, self.output_types = self._in_time(
            lambda _: self._open(content), "cannot be loaded"
        )
        self._input = self._choose_input(inputs, input_name)
        if self._input.type not in DTYPES:
            raise PolicyError(
                f"{name}: input {self._input.name!r} is {self._input.type}; expected one of"
                f" {', '.join(DTYPES)}"
            )
        self._batch = self._input.shape[0] if self._input.shape else None
        if self._batch is not None:
            warnings.warn(
                f"{name}: the batch size is fixed at {self._batch}, so the policy is asked about"
                f" {self._batch} rows at a time, which is slow; export it with a dynamic batch",
                FLEWarning,
                stacklevel=4,
            )

    def answers(self, observations: Array, outputs: Sequence[str], convert: Converter) -> Array:
        """One row for each observation."""
        fed = self._fed(observations)

        def work(options: Any) -> Array:
            size = self._batch or CHUNK
            parts = [
                self._chunk(fed[start : start + size], outputs, convert, options)
                for start in range(0, len(fed), size)
            ]
            answer = np.concatenate(parts) if len(parts) > 1 else parts[0]
            if not self._consistent and self._batch != 1 and len(parts[0]) > 1:
                alone = self._chunk(fed[:1], outputs, convert, options)
                self._require_consistent(answer[:1], alone)
            return answer

        return self._in_time(work, f"failed on observations of shape {observations.shape}")

    def _chunk(self, fed: Array, outputs: Sequence[str], convert: Converter, options: Any) -> Array:
        rows = len(fed)
        if self._batch is not None and rows < self._batch:
            fed = np.concatenate([fed, np.repeat(fed[-1:], self._batch - rows, axis=0)])
        answer = convert(self._session.run(list(outputs), {self._input.name: fed}, options))
        if answer.ndim == 0 or len(answer) != len(fed):
            raise PolicyError(
                f"{self.name}: output {outputs[0]!r} has shape {answer.shape} for {len(fed)}"
                f" observations; expected {len(fed)} rows"
            )
        return answer[:rows]

    def _require_consistent(self, in_batch: Array, alone: Array) -> None:
        same = in_batch.shape == alone.shape and np.allclose(
            in_batch, alone, rtol=1e-3, atol=1e-5, equal_nan=True
        )
        if not same:
            raise PolicyError(
                f"{self.name}: the first observation gets another answer alone than in a batch;"
                " expected rows to be independent: export the policy in evaluation mode"
            )
        self._consistent = True

    def _open(self, content: bytes) -> tuple[Any, dict[str, Port], dict[str, str]]:
        """The session, its inputs, and the types of its outputs, such as tensor(float)."""
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # Folding constants would run parts of the graph here, where nothing can stop them.
        options.graph_optimization_level = self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = self._runtime.InferenceSession(
            content, options, providers=["CPUExecutionProvider"]
        )
        inputs = {
            entry.name: Port(entry.name, entry.type, tuple(_fixed(size) for size in entry.shape))
            for entry in session.get_inputs()
        }
        return session, inputs, {entry.name: entry.type for entry in session.get_outputs()}

    def _choose_input(self, inputs: dict[str, Port], name: str | None) -> Port:
        if name is not None and name not in inputs:
            raise PolicyError(
                f"{self.name}: no input is called {name!r}; it has {', '.join(inputs) or 'none'}"
            )
        if len(inputs) != 1:
            raise PolicyError(
                f"{self.name}: has {len(inputs)} inputs ({', '.join(inputs) or 'none'}); expected"
                " one, the observations: export the policy with them in one tensor"
            )
        return next(iter(inputs.values()))

    def _fed(self, observations: Array) -> Array:
        """The observations in the shape and type of the input."""
        wanted = DTYPES[self._input.type]
        if np.issubdtype(wanted, np.integer) and observations.dtype.kind not in "iu":
            raise PolicyError(
                f"{self.name}: input {self._input.name!r} takes integers"
                f" ({np.dtype(wanted)}), but the observations are {observations.dtype};"
                " export the policy with a float32 input"
            )
        with np.errstate(over="ignore"):
            cast: Array = np.ascontiguousarray(observations, dtype=wanted)
        exact = np.isfinite(cast) if cast.dtype.kind == "f" else cast == observations
        if not exact.all():
            row = int(np.argwhere(~exact)[0, 0])
            raise PolicyError(
                f"{self.name}: the observation of row {row} does not fit in {np.dtype(wanted)}"
            )
        return cast.reshape(self._fed_shape(cast))

    def _fed_shape(self, observations: Array) -> tuple[int, ...]:
        wanted, rows = self._input.shape, len(observations)
        if not wanted:
            return observations.shape
        width = math.prod(observations.shape[1:])
        known = [size for size in wanted[1:] if size is not None]
        if len(known) == len(wanted) - 1 and math.prod(known) == width:
            return (rows, *known)
        if wanted[1:] == (None,):
            return (rows, width)
        expected = ", ".join(str(size or "any") for size in wanted[1:])
        raise PolicyError(
            f"{self.name}: input {self._input.name!r} expects observations of shape [batch,"
            f" {expected}], got width {width} (shape {observations.shape})"
        )

    def _in_time(self, work: Callable[[Any], Result], failure: str) -> Result:
        options = self._runtime.RunOptions()

        def stop() -> None:
            options.terminate = True

        try:
            return self._deadline.run(lambda: work(options), stop)
        except FLEError:
            raise
        except Exception as error:
            raise PolicyError(f"{self.name}: {failure}: {first_line(error)}") from error


def import_all() -> None:
    """Import what a policy needs, before anything is limited."""
    import google.protobuf.message  # noqa: F401
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401


def _fixed(size: Any) -> int | None:
    """The size of a dimension, None if it is left open (a name, or unknown)."""
    return size if isinstance(size, int) and size > 0 else None


def _import_runtime(name: str) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise PolicyError(f"{name}: {INSTALL}") from error
    return onnxruntime
