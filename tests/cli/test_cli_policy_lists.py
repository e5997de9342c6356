"""Two hundred policies on a command line: folders, patterns, tables and columns of the log."""

import json
import os

import numpy as np
import pytest
from cli_runs import QUICK, ROWS, log, run, write

from fle.cli import UsageError
from fle.cli.compare_command import run_folders
from fle.cli.inputs import listed_policies


@pytest.fixture
def folder(tmp_path):
    for name in ("old.onnx", "new.onnx", "deep/new.onnx", "notes.txt"):
        path = tmp_path / "policies" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path / "policies"


def test_a_folder_and_a_pattern_are_named_as_their_files(folder):
    files = {"new": str(folder / "new.onnx"), "old": str(folder / "old.onnx")}
    assert listed_policies([str(folder)], ["log.csv"]) == files
    assert listed_policies([str(folder / "*.onnx")], ["log.csv"]) == files
    # Two of one name are told apart by their paths; what is no list is named as it is written.
    deep = listed_policies([str(folder / "**" / "new.onnx"), "behaviour"], ["log.csv"])
    paths = [str(folder / "deep" / "new.onnx"), str(folder / "new.onnx")]
    assert deep == {path: path for path in paths} | {"behaviour": "behaviour"}


def test_a_table_has_names(folder):
    table = folder / "candidates.toml"
    table.write_text('[policies]\n"Old one" = "old.onnx"\nlogged = "behaviour"\n')
    assert listed_policies([str(table)], ["log.csv"]) == {
        "Old one": str(folder / "old.onnx"),
        "logged": "behaviour",
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[policies\n", "not a TOML file"),
        ("[others]\na = 'b'\n", r"expected \[policies\] with lines such as .*, got others"),
        ("[policies]\na = 3\n", "candidates.toml: a: expected .* got 3"),
    ],
)
def test_a_table_that_is_none(folder, content, message):
    table = folder / "candidates.toml"
    table.write_text(content)
    with pytest.raises(UsageError, match=message):
        listed_policies([str(table)], ["log.csv"])


def test_lists_that_name_nothing_or_too_much(folder):
    empty = folder / "empty"
    empty.mkdir()
    for given, message in (
        ([str(empty)], "expected a folder of .onnx files, got none"),
        ([str(folder / "*.pt")], "got none that fits"),
        ([str(folder / "old*")], "at least two policies"),
        ([str(folder), str(folder / "old.onnx")], "expected different policies, got .*old.onnx"),
        ([f"p{number}" for number in range(1_001)], "at most 1,000, got 1,001"),
    ):
        with pytest.raises(UsageError, match=message):
            listed_policies(given, ["log.csv"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[policies]\n"" = "a.onnx"', "expected names of one line"),
        ('[policies]\n"\\u001b[2J" = "a.onnx"', "expected names of one line"),
        (f'[policies]\n{"x" * 300} = "a.onnx"', "expected names of one line"),
        ("[policies]\nx = " + "[" * 3000, "not a TOML file"),
        ("[policies]\nx = " + "9" * 5000, "not a TOML file"),
        ("#" * 2_000_000, "expected at most"),
    ],
)
def test_tables_of_strangers(tmp_path, content, message):
    path = tmp_path / "policies.toml"
    path.write_text(content)
    with pytest.raises(UsageError, match=message):
        listed_policies([str(path)], ["log.csv"])


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "policies.toml")
    with pytest.raises(UsageError, match="not a plain file"):
        listed_policies([str(tmp_path / "policies.toml")], ["log.csv"])


def test_every_run_of_a_comparison_has_a_folder_of_its_own_inside(tmp_path):
    """Whatever the policies are called."""
    names = ["..", ".", "", "/etc/x", "a/../../b", "x" * 300, ".lock", "compare.json", "b", "../b"]
    folders = run_folders(tmp_path, names)
    assert list(folders) == names
    assert len(set(folders.values())) == len(names)
    for folder in folders.values():
        assert folder.parent == tmp_path
        assert not folder.name.startswith(".")
        assert folder.name != "compare.json"
        folder.mkdir()


def candidates(number):
    """Columns of policies that take action 1, which earns 1 more, more and more often."""
    shares = np.linspace(0.1, 0.9, number)
    columns = {}
    for place, share in enumerate(shares):
        columns[f"try_{place}.0"] = np.full(ROWS, 1 - share)
        columns[f"try_{place}.1"] = np.full(ROWS, share)
    return log(**columns)


def test_columns_by_prefix_and_a_budget(capsys, tmp_path):
    data = write(tmp_path, candidates(6))
    given = ("compare", data, "--policy", "columns:try_*", "--horizon", "4", "--rows", "step")
    out = tmp_path / "runs"
    answer = run(capsys, *given, *QUICK, "--budget", "2", "--out", out)
    assert answer.code == 0
    assert "try_5" in answer.out
    assert "6 policies were looked at by least squares" in answer.out
    document = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    ranked = [entry["policy"] for entry in document["ranking"]]
    left = [entry["policy"] for entry in document["unfitted"]]
    assert len(ranked) <= 2
    assert sorted([*ranked, *left]) == [f"try_{place}" for place in range(6)]
    # Each takes action 1 less often than the next.
    assert left == sorted(left, reverse=True)
    assert document["unfitted"][-1]["outcome"] == "dropped"
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(ranked)
    page = (out / "comparison.html").read_text(encoding="utf-8")
    assert "Without a full fit" in page
    with pytest.raises(UsageError, match="columns of the log that fit none_"):
        listed_policies(["columns:none_*"], [str(data)])


def test_an_error_names_the_file(capsys, folder, tmp_path):
    data = write(tmp_path, log())
    answer = run(capsys, "compare", data, "--policy", folder, "--gamma", ".5", *QUICK)
    assert answer.code == 2
    assert "new.onnx" in answer.err
