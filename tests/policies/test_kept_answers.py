"""Answers beside a prepared log: whatever lies there, the answer is the policy's own."""

import os
import shutil
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fle
from fle.policies.answers import FOLDER, Answers, settle
from fle.policies.function_policies import Probabilities

ROWS = 12


def sigmoid(observations):
    first = 1 / (1 + np.exp(-observations[:, 0]))
    return np.stack([first, 1 - first], axis=1)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    columns = {
        "observation.0": np.linspace(-1, 1, ROWS),
        "action": np.arange(ROWS) % 2,
        "reward": np.ones(ROWS),
        "terminated": np.arange(ROWS) % 4 == 3,
    }
    pq.write_table(pa.table(columns), folder / "log.parquet")
    fle.prepare(folder / "log.parquet", folder / "log")
    return folder / "log"


@pytest.fixture
def log(written, tmp_path):
    return shutil.copytree(written, tmp_path / "log")


def asked(log, policy=sigmoid):
    """The answers, and whether the policy was asked for all of them."""
    calls = []

    def counted(observations):
        calls.append(len(observations))
        return policy(observations)

    data = fle.open(log)
    settled = settle(Probabilities(counted), data)
    table = Answers.of(data, "policy", 1, 0).at(settled, data, [(0, len(data))])
    return table, len(data) in calls


def test_what_is_kept_is_used(log):
    first, all_asked = asked(log)
    assert all_asked
    again, all_asked = asked(log)
    assert not all_asked
    np.testing.assert_array_equal(again.probabilities, first.probabilities)


def replaced(write):
    def change(path):
        path.unlink()
        write(path)

    return change


def forged(**changes):
    def write(path):
        content = {"probabilities": np.full((ROWS, 2), 0.5), "actions": np.arange(2)[None]}
        np.savez(path, **{**content, **changes})

    return replaced(write)


def lying(path):
    """Half a terabyte by its header; a few bytes in the file."""
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (68719476736,), }"
    entry = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + head.ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("probabilities.npy", entry)
        archive.writestr("actions.npy", entry)


def packed(path):
    np.savez_compressed(path, probabilities=np.zeros((ROWS, 10**6)), actions=np.zeros((1, 2), int))


DAMAGES = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "a pipe": replaced(os.mkfifo),
    "endless": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a folder": replaced(lambda path: path.mkdir()),
    "no archive": replaced(lambda path: path.write_bytes(b"\x93NUMPY")),
    "lying": replaced(lying),
    "packed": replaced(packed),
    "even odds": forged(),
    "other odds": forged(probabilities=np.full((ROWS, 2), [0.9, 0.1])),
    "too few rows": forged(probabilities=np.full((3, 2), 0.5)),
    "one axis": forged(probabilities=np.full(ROWS, 0.5)),
    "three axes": forged(probabilities=np.full((ROWS, 2, 2), 0.5)),
    "no numbers": forged(probabilities=np.full((ROWS, 2), np.nan)),
    "texts": forged(actions=np.full((1, 2), "a")),
    "vectors": forged(actions=np.zeros((ROWS, 2, 3))),
    "normal": forged(mean=np.zeros((ROWS, 1)), std=np.ones((ROWS, 7))),
}


@pytest.mark.skipif(sys.platform == "win32", reason="makes links and pipes")
@pytest.mark.parametrize("damage", DAMAGES)
def test_what_somebody_put_there_is_not_believed(log, damage):
    expected, _ = asked(log)
    DAMAGES[damage](next((log / FOLDER).glob("*/*.npz")))
    found, all_asked = asked(log)
    assert all_asked
    np.testing.assert_array_equal(found.probabilities, expected.probabilities)


@pytest.mark.skipif(sys.platform == "win32", reason="makes links")
@pytest.mark.parametrize("level", [FOLDER, "key"])
def test_nothing_is_written_through_a_link(log, tmp_path, level):
    asked(log)
    (tmp_path / "elsewhere").mkdir()
    link = log / FOLDER if level == FOLDER else next((log / FOLDER).iterdir())
    shutil.rmtree(link)
    link.symlink_to(tmp_path / "elsewhere")
    _, all_asked = asked(log)
    assert all_asked
    assert list((tmp_path / "elsewhere").iterdir()) == []
