"""One file added to the families is a model everywhere, as `docs/adding_a_model.md` says."""

import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
from doc_pages import ROOT
from doc_scenes import data_and_policy

import fle
from fle.errors import SettingsError
from fle.models import families

RECIPE = {"steps": 10, "batch_size": 50, "weight_decay": 0.0}
# A process of its own, as the command line lists the models when it starts.
COMMAND = """
import sys
from fle.models import families
families.__path__.append(sys.argv[1])
from fle.cli import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def folder(tmp_path):
    """A folder with the file of the model in it, and nothing else."""
    made = tmp_path / "families"
    made.mkdir()
    shutil.copy(ROOT / "examples" / "laplace.py", made)
    return made


@pytest.fixture(autouse=True)
def unregistered(monkeypatch):
    """The page, which is run by another test, registers its model for the whole process."""
    monkeypatch.delitem(fle.models.register.__globals__["_OWN"], "laplace", raising=False)


@pytest.fixture
def added(folder, monkeypatch):
    """The folder is one of those of the package."""
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(folder)])
    yield
    sys.modules.pop("fle.models.families.laplace", None)


def evaluated(names, model, **settings):
    with warnings.catch_warnings():
        # Data this small is warned of, and rightly.
        warnings.simplefilter("ignore", fle.FLEWarning)
        return fle.evaluate(
            names["data"], names["policy"], horizon=2, model=model, recipe=RECIPE, **settings
        )


def command(folder, directory, *words):
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", COMMAND, str(folder), *words],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def test_without_its_file_the_model_is_unknown():
    assert "laplace" not in fle.models.names()
    with pytest.raises(SettingsError, match=r"model: expected one of auto, .* got 'laplace'"):
        fle.models.family("laplace")


def test_from_python_by_its_name_and_from_a_saved_run(added, tmp_path):
    assert "laplace" in fle.models.names()
    names = data_and_policy(tmp_path)
    result = evaluated(names, "laplace", out=tmp_path / "run")
    assert result.model == fle.models.family("laplace")()
    again = fle.load(tmp_path / "run")
    assert again.model == result.model
    assert np.array_equal(again.returns.sample(100, seed=0), result.returns.sample(100, seed=0))
    point = result.returns.mean()
    assert again.returns.log_prob(point) == result.returns.log_prob(point)


def test_a_saved_run_of_an_unknown_model_says_what_to_do(added, tmp_path, monkeypatch):
    evaluated(data_and_policy(tmp_path), "laplace", out=tmp_path / "run")
    monkeypatch.setattr(families, "__path__", families.__path__[:-1])
    with pytest.raises(SettingsError, match=r"'laplace' that is not part of fle.*register"):
        fle.load(tmp_path / "run")


def test_from_the_command_line_and_from_toml(folder, tmp_path):
    data_and_policy(tmp_path)
    shared = ("logs.parquet", "--policy", "policy.onnx", "--horizon", "2", "--json", "--anyway")
    shared += ("--no-second-opinions", "--interval", "none")
    settings = [word for name, value in RECIPE.items() for word in ("--recipe", f"{name}={value}")]
    said = command(folder, tmp_path, "evaluate", *shared, "--model", "laplace", *settings)
    assert said.returncode == 0, said.stderr
    written = {"model": "laplace", "hyperparameter": {"hidden": [64, 64]}, "recipe": RECIPE}
    (tmp_path / "run.toml").write_text(as_toml(written))
    read = command(folder, tmp_path, "evaluate", *shared, "--config", "run.toml")
    assert read.returncode == 0, read.stderr
    first, second = (json.loads(answer.stdout) for answer in (said, read))
    assert first["model"] == second["model"] == "Laplace(hidden=(64, 64))"
    assert first["returns"] == second["returns"]


def as_toml(settings):
    plain = [f"{key} = {json.dumps(v)}" for key, v in settings.items() if not isinstance(v, dict)]
    tables = [
        f"[{key}]\n" + "\n".join(f"{name} = {json.dumps(value)}" for name, value in v.items())
        for key, v in settings.items()
        if isinstance(v, dict)
    ]
    return "\n".join([*plain, *tables]) + "\n"


def test_a_file_without_its_model_is_named(added, folder):
    (folder / "empty_family.py").write_text("")
    with pytest.raises(fle.FLEError, match=r"empty_family\.py: expected a ModelSpec with name"):
        fle.models.family("empty-family")
    sys.modules.pop("fle.models.families.empty_family", None)
