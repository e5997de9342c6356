"""Reads a stranger's ONNX file and refuses whatever could reach outside it or draw at random."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fle.errors import PolicyError

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
INSTALL = 'ONNX policies need two packages: pip install "fle[onnx]"'


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
