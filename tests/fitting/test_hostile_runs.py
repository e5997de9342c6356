"""Whatever stands in a run's JSON, and however right its hashes are, gives an FLEError or a run."""

import json
import time

import numpy as np
import pytest
from quick_runs import copied, evaluate, sealed

from fle.errors import FLEError
from fle.fitting import load
from fle.fitting.checkpoints import read_tensors, tensor_bytes

DEEP = "[" * 100_000 + "]" * 100_000


def places(value, path=()):
    """The path of every value inside a value."""
    yield path
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in list(keys):
            yield from places(value[key], (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    changed = dict(value) if isinstance(value, dict) else list(value)
    changed[path[0]] = replaced(value[path[0]], path[1:], new)
    return changed


WRONG = (None, True, -1, 10**12, 1e308, "text", "\ud800", [], [[1]], {}, {"a": {"b": []}})


@pytest.mark.parametrize("name", ["result.json", "run.json"])
@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_a_wrong_value_anywhere(finished, tmp_path, name, wrong):
    """Every value of both files, replaced by every wrong one: refused, or read without harm."""
    run = copied(finished, tmp_path / "run")
    facts = json.loads((run / name).read_text())
    began, refused = time.monotonic(), 0
    for path in places(facts):
        # One record is like another.
        if path[:1] == ("records",) and path[1:2] > (0,):
            continue
        (run / name).write_text(json.dumps(replaced(facts, path, wrong)))
        try:
            load(sealed(run))
        except FLEError:
            refused += 1
    assert refused > 5
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("wrong", [7, None, {}, {"steps": 7}, {"run": "x", "steps": "y"}])
def test_what_a_run_went_on_from(finished, tmp_path, wrong):
    run = copied(finished, tmp_path / "run")
    facts = json.loads((run / "run.json").read_text())
    facts["settings"]["from"] = wrong
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(FLEError, match=r"run\.json: from is damaged"):
        load(sealed(run))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", DEEP, "expected JSON, not nested so deeply"),
        ("result.json", '{"format": 1, "run": ' + "[" * 50 + "]" * 50 + "}", "nested at most 20"),
        ("run.json", DEEP, "not nested so deeply"),
        ("manifest.json", DEEP, "not nested so deeply"),
        ("result.json", '{"format": 1, "format": 1}', "each name once"),
        ("run.json", '{"format": 1, "data": NaN}', "run.json is cut or damaged"),
        ("run.json", '{"format": 1, "data": ' + "9" * 5000 + "}", "run.json is cut or damaged"),
    ],
)
def test_json_that_breaks_parsers(finished, tmp_path, name, content, message):
    run = copied(finished, tmp_path / "run")
    (run / name).write_text(content)
    with pytest.raises(FLEError, match=message):
        load(run if name == "manifest.json" else sealed(run))


@pytest.mark.parametrize(
    "model",
    [
        {"name": "gaussian", "hidden": [10**9], "std": None},
        {"name": "gaussian", "hidden": [9999, 9999, 9999], "std": None},
        {"name": "gaussian", "hidden": "wide", "std": None},
        {"name": "gaussian", "hidden": [], "std": 1, "more": 1},
        {"name": "diffusion", "hidden": [8], "sampling_steps": 10**9, "pool": 4},
        {"name": "gmm", "hidden": [8, 8], "components": 10**9},
        {"name": "no such model"},
        {},
    ],
    ids=str,
)
def test_a_model_that_is_too_large_is_not_built(finished, tmp_path, model):
    run = copied(finished, tmp_path / "run")
    facts = json.loads((run / "result.json").read_text())
    (run / "result.json").write_text(json.dumps({**facts, "model": model}))
    began = time.monotonic()
    with pytest.raises(FLEError):
        load(sealed(run))
    assert time.monotonic() - began < 5


def with_arrays(run, **changes):
    """The run with other arrays and a right hash; what becomes None is left out."""
    path = run / "model.safetensors"
    arrays, facts = read_tensors(path)
    changed = {**arrays, **{name.replace("__", "/"): value for name, value in changes.items()}}
    path.write_bytes(tensor_bytes({n: v for n, v in changed.items() if v is not None}, facts))
    return sealed(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"initial__inputs": None},
        {"initial__inputs": np.zeros((1, 3), np.float32)},
        {"initial__inputs": np.full((20, 11), np.nan, np.float32)},
        {"initial__weights": np.zeros(20)},
        {"initial__weights": np.array(1.0)},
        {"encoder__reward_unit": np.zeros(1)},
        {"encoder__reward_unit": np.ones(2)},
        {"encoder__other": np.ones(2)},
        {"encoder__action_scale": None},
        {"logged__returns": np.ones((3, 9))},
        {"logged__returns": np.array(1.0)},
        {"fits__other": np.array(3.0)},
        {"fits__frame/centre": None},
    ],
    ids=str,
)
def test_arrays_of_other_shapes(finished, tmp_path, changes):
    with pytest.raises(FLEError):
        load(with_arrays(copied(finished, tmp_path / "run"), **changes))


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_facts_of_a_checkpoint(finished, tmp_path, wrong):
    """The run goes on from a checkpoint whose hash is right and whose facts are not."""
    run = copied(finished, tmp_path / "run")
    (run / "manifest.json").unlink()
    path = sorted((run / "checkpoints").iterdir())[-1]
    arrays, facts = read_tensors(path)
    wrongs = [facts | {name: wrong} for name in facts] + [{}, {"run": facts["run"]}]
    for facts in wrongs:
        try:
            path.write_bytes(tensor_bytes(arrays, facts))
        except UnicodeEncodeError:
            continue
        with pytest.raises(FLEError):
            evaluate(out=run)
        break
