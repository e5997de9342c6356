"""CSV as spreadsheets of other countries write it."""

import importlib.util

import h5py
import numpy as np
import pytest

from fle.data import read
from fle.data.readers.formats import separator
from fle.errors import DataError

LINES = [
    "patient{0}when{0}lab{0}drug{0}score{0}over",
    "a{0}01.03.2024 08:00{0}1{1}5{0}A{0}-0{1}25{0}N",
    "a{0}31.12.2024 09:30{0}{0}B{0}2{0}Y",
    "b{0}02.01.2024 10:00{0}3{0}A{0}0{1}5{0}Y",
]
MAPPED = {
    "observation": "lab",
    "action": "drug",
    "reward": "score",
    "episode": "patient",
    "step": "when",
    "terminated": "over",
    "missing": "indicator",
}


@pytest.fixture(params=["pyarrow", "plain"])
def parser(request, monkeypatch):
    """Both parsers; the plain one is used where pyarrow is not installed."""
    if request.param == "plain":
        real = importlib.util.find_spec
        monkeypatch.setattr(
            "fle.data.readers.arrow_tables.find_spec",
            lambda name: None if name == "pyarrow" else real(name),
        )


@pytest.mark.parametrize(("mark", "decimal"), [(",", "."), (";", ","), ("\t", "."), ("|", ",")])
def test_separators_decimals_and_dates(tmp_path, parser, mark, decimal):
    path = tmp_path / "log.csv"
    path.write_text("\n".join(line.format(mark, decimal) for line in LINES) + "\n")
    data = read(path, **MAPPED, elapsed="hours")
    np.testing.assert_array_equal(data.rewards[:, 0], [-0.25, 2.0, 0.5])
    # The median of 1.5 and 3 stands for the lab that is missing.
    np.testing.assert_array_equal(data.observations[:, 0], [1.5, 2.25, 3.0])
    # From 1 March, 8:00, to 31 December 2024, 9:30: 305 days and one and a half hours.
    np.testing.assert_array_equal(data.observations[:, -1], [0, 305 * 24 + 1.5, 0])
    said = [note for note in data.notes if "separated by" in note]
    assert len(said) == (mark != ",")
    assert all(("decimal point" in note) == (decimal == ",") for note in said)


@pytest.mark.parametrize(
    ("head", "mark"),
    [
        ("a,b;c,d\n1,2,3\n", ","),
        ("a;b;c\n1,5;2,5;3,5\n", ";"),
        ('"a;b",c\n1,2\n', ","),
        ("alone\n1;2\n", ","),
        ("", ","),
    ],
)
def test_the_header_says_what_separates(head, mark):
    assert separator(head) == mark


@pytest.mark.parametrize("name", ["log.xlsx", "log.json", "log.dta"])
def test_what_pandas_reads_is_left_to_pandas(tmp_path, name):
    (tmp_path / name).write_bytes(b"PK\x03\x04 a spreadsheet")
    with pytest.raises(DataError, match=r"save it as CSV or Parquet, or.*pandas\.read_"):
        read(tmp_path / name)


def test_dates_that_may_be_read_two_ways_are_refused(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("\n".join(LINES).format(",", ".").replace("01.03.2024", "03/01/2024") + "\n")
    with pytest.raises(DataError, match=r"'when', row 0 is the text '03/01/2024 08:00'"):
        read(path, **MAPPED)


def test_groups_of_episodes_are_told_from_tables(tmp_path):
    with h5py.File(tmp_path / "log.hdf5", "w") as file:
        for number in range(3):
            file[f"data/demo_{number}/actions"] = np.zeros((4, 1))
    with pytest.raises(DataError, match=r"3 groups hold actions.*from_episodes"):
        read(tmp_path / "log.hdf5")
