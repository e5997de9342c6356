"""Imports follow the data: a package sees only those before it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import fle

ROOT = Path(fle.__file__).parent
# What each part of the package may import from the others.
ALLOWED = {
    "errors": set(),
    "screen": {"errors"},
    "files": {"errors"},
    "manifests": {"errors", "files"},
    "recipe": {"errors"},
    "data": {"errors", "files", "manifests", "screen"},
    "policies": {"errors", "files", "manifests", "data"},
    "models": {"errors", "recipe"},
    "returns": {"errors", "screen"},
    "tasks": {"errors"},
    "examples": {"errors"},
    "executors": {"errors", "files"},
    "fitting": {
        "errors",
        "screen",
        "files",
        "manifests",
        "recipe",
        "data",
        "policies",
        "models",
        "returns",
        "executors",
    },
}
ALLOWED["baselines"] = ALLOWED["fitting"] | {"fitting"}
ALLOWED["trust"] = ALLOWED["baselines"] | {"baselines"}
# May import what fitting may, and what comes after it.
ALLOWED["report"] = ALLOWED["trust"] | {"trust"}
# A method may hand its object on to a later part, which it imports when it is called.
HANDED_ON = {
    ("executors.py", "fitting"),
    ("fitting/comparison.py", "report"),
    ("fitting/evaluation.py", "report"),
    ("fitting/evaluation.py", "trust"),
    ("returns/distribution.py", "report"),
    ("fitting/contest.py", "baselines"),
    ("fitting/plans.py", "baselines"),
}
# May import anything below the command line.
TOP = {"__init__", "paper", "cli", "__main__"}
HEAVY = (
    "torch",
    "gymnasium",
    "minari",
    "ot",
    "altair",
    "matplotlib",
    "pandas",
    "polars",
    "pyarrow",
    "h5py",
    "onnx",
    "onnxruntime",
    "flowjax",
    "diffrax",
    "ray",
)


def part_of(path):
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imported_parts(path):
    """The parts of fle that a file imports, anywhere in it, with the lines."""
    yield from imports_in(ast.walk(parsed(path)), path)


def parsed(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_in(nodes, path):
    package = ("fle", *path.relative_to(ROOT).parent.parts)
    for node in nodes:
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            # `from fle import data` names a part, `from fle.data import Dataset` lies in one.
            modules = [f"fle.{a.name}" for a in node.names] if module == "fle" else [module]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "fle":
                yield parts[1] if len(parts) > 1 else "__init__", node.lineno


FILES = sorted(path for path in ROOT.rglob("*.py") if part_of(path) not in TOP)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_upward(path):
    part = part_of(path)
    assert part in ALLOWED, (
        f"{part} has no place in the layout: add it to ALLOWED and to the design"
    )
    for imported, line in imported_parts(path):
        if (path.relative_to(ROOT).as_posix(), imported) not in HANDED_ON:
            assert imported in ALLOWED[part] | {part}, f"{path}:{line} imports fle.{imported}"


@pytest.mark.parametrize(("file", "part"), sorted(HANDED_ON))
def test_handing_on_waits_for_the_call(file, part):
    at_import = dict(imports_in(parsed(ROOT / file).body, ROOT / file))
    assert part not in at_import
    assert part in dict(imported_parts(ROOT / file))


def test_the_layout_has_no_cycle():
    for part, allowed in ALLOWED.items():
        assert all(part not in ALLOWED[other] for other in allowed)


def test_imports_are_found_however_they_are_written(tmp_path, monkeypatch):
    monkeypatch.setattr("test_layers.ROOT", tmp_path)
    source = tmp_path / "models" / "new.py"
    source.parent.mkdir()
    source.write_text(
        "import fle\nfrom fle import data\nfrom fle.tasks.gaussian_returns import LQR\n"
        "from ..returns import risk\n"
        "def later():\n    import fle.fitting.bellman\n    from . import base\n"
    )
    found = dict(imported_parts(source))
    assert found == {
        "__init__": 1,
        "data": 2,
        "tasks": 3,
        "returns": 4,
        "fitting": 6,
        "models": 7,
    }


def test_every_public_name_has_a_home():
    assert all(getattr(fle, name) is not None for name in fle.__all__)
    assert set(fle.__all__) == set(dir(fle))
    with pytest.raises(AttributeError, match="nothing"):
        fle.nothing  # noqa: B018


def test_import_does_not_wait_for_jax():
    """So it takes less than the time of `import jax`, whatever the machine."""
    answer = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, fle; print('jax' in sys.modules); fle.policies.RowProbabilities",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert answer.stdout.strip() == "False"


@pytest.mark.parametrize("name", sorted(fle._ROOMS))
def test_packages_are_attributes(name):
    """Also before anything has imported them, as the first lines of a page may need."""
    assert fle.__getattr__(name).__name__ == f"fle.{name}"


def test_import_is_light():
    """Optional packages are imported where they are used, so that fle runs without them."""
    code = (
        f"import sys, fle; fle.evaluate; print(*[name for name in {HEAVY} if name in sys.modules])"
    )
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert answer.stdout.split() == []


def test_the_first_line_and_the_help_wait_for_nothing_heavy():
    """So `fle --help` takes hardly longer than Python itself, and a command says at once that it
    was understood."""
    code = (
        "import sys; from fle.cli import main; main(['--help']);"
        "print(*[name for name in ('numpy', 'scipy', 'jax') if name in sys.modules])"
    )
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert "evaluate" in answer.stdout
    assert answer.stdout.splitlines()[-1] == ""


def test_the_help_lists_the_commands_that_there_are():
    from fle.cli import SUMMARIES
    from fle.cli.commands import COMMANDS

    assert list(SUMMARIES) == [command.name for command in COMMANDS]
