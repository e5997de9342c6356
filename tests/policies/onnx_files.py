"""Small ONNX files, made by hand."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
OBSERVATIONS = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
WEIGHTS = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)


def tensor(name, values):
    return numpy_helper.from_array(np.asarray(values), name)


def node(operator, inputs, outputs, **attributes):
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


def port(name, shape=("n", 2), dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, list(shape))


def model(nodes, outputs, *, inputs=None, constants=(), domains=(), batch="n", width=3):
    """`outputs` are names, or ports where they are not floats (n, 2)."""
    graph = helper.make_graph(
        nodes,
        "policy",
        inputs or [port("obs", (batch, width))],
        [port(entry) if isinstance(entry, str) else entry for entry in outputs],
        list(constants),
    )
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def linear(output="logits", weights=WEIGHTS, then=(), outputs=None, **settings):
    """obs @ weights, called `output`, followed by other nodes."""
    return model(
        [node("MatMul", "obs weights", output), *then],
        outputs or [output],
        constants=[tensor("weights", weights), *settings.pop("constants", ())],
        width=len(weights),
        **settings,
    )


def save(folder, proto, name="policy.onnx"):
    path = folder / name
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return path


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
