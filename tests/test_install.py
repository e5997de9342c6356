"""What `pip install` alone gives, hints that work anywhere, and what a release says of itself."""

import runpy
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from doc_pages import ROOT

import fle
from fle.errors import install
from fle.files import fetched

MESSY = {
    "episode": "patient",
    "step": "date",
    "observation": ["ward", "lab"],
    "action": "drug",
    "reward": "score",
    "terminated": "discharged",
    "probability": {"new": "new_"},
    "missing": "forward",
}


@pytest.fixture
def no_pyarrow(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)


@pytest.mark.filterwarnings("ignore::fle.FLEWarning")
def test_csv_without_pyarrow_is_the_same(tmp_path, request):
    """Text, dates, nulls, truth values and numbers, in no order."""
    runpy.run_path(str(ROOT / "examples" / "make_messy_logs.py"))["main"](tmp_path)
    with_it = fle.read(tmp_path / "visits.csv", **MESSY)
    request.getfixturevalue("no_pyarrow")
    without = fle.read(tmp_path / "visits.csv", **MESSY)
    assert without.fingerprint == with_it.fingerprint
    assert without.action_labels == with_it.action_labels
    assert without.observation_names == with_it.observation_names


CELLS = {
    "whole": ("1,2,,4", "int64", [1, 2, 0, 4]),
    "numbers": ("1,2.5,NA,-1e3", "float64", [1, 2.5, 0, -1000]),
    "truth": ("true,FALSE,,true", "bool", [True, False, False, True]),
    "text": ("A,12,,b", "<U2", ["A", "12", "", "b"]),
    "days": (
        "2024-01-02,,2024-01-03,2024-02-01",
        "datetime64[D]",
        ["2024-01-02", "NaT", "2024-01-03", "2024-02-01"],
    ),
    "times": (
        "2024-01-02 03:04:05,2024-01-02T03:04:06,,2024-01-02 00:00",
        "datetime64[us]",
        ["2024-01-02T03:04:05", "2024-01-02T03:04:06", "NaT", "2024-01-02T00:00"],
    ),
    "years": ("2020,2021,2022,2023", "int64", [2020, 2021, 2022, 2023]),
    "nothing": (",,,", "float64", [0, 0, 0, 0]),
}


@pytest.mark.parametrize("kind", CELLS)
def test_cells_have_the_types_that_pyarrow_gives(kind, tmp_path, request):
    from fle.data.readers.arrow_tables import csv_source

    text, dtype, expected = CELLS[kind]
    rows = [f"{number},{cell}" for number, cell in enumerate(text.split(","))]
    (tmp_path / "a.csv").write_text("\n".join(["id,x", *rows]) + "\n")
    theirs = csv_source([tmp_path / "a.csv"]).load(["x"])
    request.getfixturevalue("no_pyarrow")
    ours = csv_source([tmp_path / "a.csv"]).load(["x"])
    assert ours.whole("x").dtype == dtype
    np.testing.assert_array_equal(ours.whole("x"), np.array(expected, dtype))
    absent = np.zeros(4, bool)
    np.testing.assert_array_equal(ours.nulls.get("x", absent), theirs.nulls.get("x", absent))
    assert theirs.whole("x").dtype.kind == ours.whole("x").dtype.kind
    known = ~ours.nulls.get("x", absent)
    np.testing.assert_array_equal(ours.whole("x")[known], theirs.whole("x")[known])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "is empty: expected a header line"),
        ("a,b\n", "no row"),
        ("a,b\n1,2\n3\n", "row 1 has 1 cells; expected 2"),
        ("a,a\n1,2\n", "'a' appears 2 times"),
    ],
)
def test_wrong_csv_is_refused(content, said, tmp_path, no_pyarrow):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(fle.FLEError, match=said):
        fle.read(tmp_path / "a.csv")


def test_hints_name_the_packages_themselves(monkeypatch):
    """`fle[files]` would be looked up in an index, where a checkout is not."""
    assert install("files") == "pip install h5py pyarrow"

    def unknown(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", unknown)
    assert install("files") == "pip install 'fle[files]'"


def test_a_run_from_another_file_system(tmp_path):
    (tmp_path / "run" / "inside").mkdir(parents=True)
    (tmp_path / "run" / "inside" / "a").write_text("b")
    with fetched((tmp_path / "run").as_uri()) as copy:
        assert (copy / "inside" / "a").read_text() == "b"
    # What is on this machine is not copied, and stays.
    assert copy == tmp_path / "run"
    with pytest.raises(fle.FLEError, match="not a run directory"):
        fle.load((tmp_path / "run").as_uri())
    with pytest.raises(fle.FLEError, match="cannot be read"):
        fle.load((tmp_path / "absent").as_uri())
    with pytest.raises(fle.FLEError, match="cannot be read"):
        fle.load("nowhere://bucket/run")


def test_other_file_systems_need_pyarrow(no_pyarrow):
    with pytest.raises(fle.FLEError, match="need pyarrow: pip install h5py pyarrow"):
        fle.load("s3://bucket/run")


def test_what_a_release_says_of_itself():
    assert (Path(fle.__file__).parent / "py.typed").exists()
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {fle.__version__}\n" in cited
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert {"files", "onnx", "charts", "flows", "transport", "gym"} <= extras.keys()
