"""Small logs, policies and command lines, and what a command line answered."""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx import TensorProto, helper, numpy_helper

from fle.cli import main

EPISODES, LENGTH = 60, 4
ROWS = EPISODES * LENGTH
# A linear model, trained for a moment: cheap, and the same shapes in every test.
QUICK = (
    *("--model", "gaussian", "--hyperparameter", "hidden=[]", "--hyperparameter", "std=1.0"),
    *("--recipe", "steps=20", "--recipe", "batch_size=60", "--recipe", "weight_decay=0.0"),
)


@dataclass(frozen=True)
class Answer:
    """What came back: the exit code, stdout and stderr."""

    code: int
    out: str
    err: str


def run(capsys, *words):
    """Run a command line in this process; nothing may look like a crash."""
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return checked(Answer(code, captured.out, captured.err))


def run_once(*words):
    """The same for fixtures that outlive a test."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("FLE_COMPILATION_CACHE", "off")
        code = main([str(word) for word in words])
    return checked(Answer(code, out.getvalue(), err.getvalue()))


def checked(answer):
    """An answer whose stderr has short lines only."""
    assert "Traceback" not in answer.err
    for line in filter(None, answer.err.split("\n")):
        assert line.startswith(("warning: ", "error: ", "stopped")), answer.err
    return answer


def log(**changes):
    """Two features, two actions and a noisy reward; a change to None leaves a column out."""
    generator = np.random.default_rng(0)
    steps = np.tile(np.arange(LENGTH), EPISODES)
    actions = generator.integers(0, 2, ROWS)
    columns = {
        "episode": np.repeat(np.arange(EPISODES), LENGTH),
        "step": steps,
        "observation.x": generator.uniform(-1, 1, ROWS).round(3),
        "observation.y": generator.uniform(-1, 1, ROWS).round(3),
        "action": actions,
        "reward": actions + generator.uniform(-1, 1, ROWS),
        "terminated": steps == LENGTH - 1,
        "truncated": np.zeros(ROWS, dtype=bool),
        **changes,
    }
    return {name: values for name, values in columns.items() if values is not None}


def with_value(column, row, value):
    """The log with one value changed."""
    values = log()[column].astype(type(value) if isinstance(value, float) else object)
    values[row] = value
    return log(**{column: values.tolist() if values.dtype == object else values})


def write(folder, columns, name="log.parquet"):
    path = folder / name
    pq.write_table(pa.table(columns), path)
    return path


def onnx_policy(
    folder, *, outputs=("logits",), width=2, actions=2, batch="n", nodes=None, domain=""
):
    """obs @ weights, copied to each of the outputs; or nodes of one's own."""
    weights = np.random.default_rng(1).normal(size=(width, actions)).astype(np.float32)
    graph = helper.make_graph(
        nodes
        or [
            helper.make_node("MatMul", ["obs", "weights"], ["scores"]),
            *(helper.make_node("Identity", ["scores"], [output]) for output in outputs),
        ],
        "policy",
        [helper.make_tensor_value_info("obs", TensorProto.FLOAT, [batch, width])],
        [
            helper.make_tensor_value_info(output, TensorProto.FLOAT, [batch, actions])
            for output in outputs
        ],
        [numpy_helper.from_array(weights, "weights")],
    )
    opsets = [helper.make_opsetid("", 17)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    path = folder / "policy.onnx"
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    path.write_bytes(proto.SerializeToString())
    return path
