"""`fle gate`: the exit code is the answer."""

import json
import xml.etree.ElementTree as Xml

import numpy as np
import pytest
from cli_runs import QUICK, ROWS, log, run, write

from fle.cli.messages import DONE, NOT_MET, UNDECIDED, WRONG_INPUT


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    columns = log(**{"good.0": np.full(ROWS, 0.2), "good.1": np.full(ROWS, 0.8)})
    return write(tmp_path_factory.mktemp("gate"), columns)


def gate(capsys, data, *words):
    question = ("--policy", "columns:good", "--horizon", "1", "--rows", "step")
    trained = ("--recipe", "steps=200", "--recipe", "learning_rate=0.05", "--replicates", "5")
    return run(capsys, "gate", data, *question, *QUICK, *trained, *words)


# The first step earns 0.8 on average; 60 rows with noise of variance 1/3 know it to 0.09.
@pytest.mark.parametrize(
    ("required", "code"),
    [("mean >= 0", DONE), ("mean >= 3", NOT_MET), ("mean >= 0.8", UNDECIDED)],
)
def test_the_exit_code_is_the_answer(capsys, tmp_path, data, required, code):
    junit = tmp_path / "gate.xml"
    answer = gate(capsys, data, "--require", required, "--junit", junit, "--json")
    assert answer.code == code
    # One line, for the logs of a pipeline.
    assert len(answer.out.strip().splitlines()) == 1
    document = json.loads(answer.out)
    assert document["exit_code"] == code
    assert document["requirements"][0]["require"] == required
    failures = list(Xml.parse(junit).getroot().iter("failure"))  # noqa: S314
    assert len(failures) == (code != DONE)


def test_the_table_says_what_was_held_against_what(capsys, data):
    answer = gate(capsys, data, "--require", "mean >= behaviour", "--require", "loss <= 0.9")
    assert "that of behaviour subtracted" in answer.out
    assert "estimate and bound at 0.95" in answer.out
    assert answer.out.rstrip().endswith(("gate: met", "gate: undecided"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--require", "mean > 3"), "expected MEASURE >= BOUND"),
        (("--require", "mean of speed >= 3"), "expected a reward among reward"),
        (("--require", "mean >= 3", "--level", "0.4"), "above 0.5 and below 1"),
        ((), "--require is missing"),
    ],
)
def test_what_cannot_be_decided_is_wrong_usage(capsys, data, words, said):
    answer = gate(capsys, data, *words)
    assert answer.code == WRONG_INPUT
    assert said in answer.err
