"""The house stays tidy: few modules, each with a name of its own, and short functions."""

import ast
from collections import Counter
from pathlib import Path

import pytest

import fle

ROOT = Path(fle.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))
MOST_MODULES = 134
MOST_LINES = 60


def test_modules_are_few():
    assert len(MODULES) <= MOST_MODULES


def test_no_two_modules_have_one_name():
    names = Counter(path.stem for path in MODULES if not path.stem.startswith("__"))
    folders = {path.parent.name for path in MODULES}
    assert [name for name, count in names.items() if count > 1] == []
    # A module named like a folder would be mistaken for it.
    assert sorted(set(names) & folders) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_functions_are_short(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(tree)
        if isinstance(node, kinds) and node.end_lineno - node.lineno + 1 > MOST_LINES
    }
    assert long == {}


def test_no_module_hides_behind_a_function_of_its_name():
    """`from package import name` must give what stands in the package under that name."""
    for package in MODULES:
        if package.stem != "__init__" or package.parent == ROOT:
            continue
        tree = ast.parse(package.read_text(encoding="utf-8"))
        exported = {
            alias.asname or alias.name
            for node in tree.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        siblings = {path.stem for path in package.parent.glob("*.py")}
        assert sorted(exported & siblings) == [], package
