"""A fit that is interrupted after any stage goes on as if nothing had happened."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from quick_fits import cycle

import fle
from fle.errors import FLEError, FLEWarning, SettingsError, TrainingError
from fle.fitting import checkpoints
from fle.fitting.checkpoints import array_leaves
from fle.fitting.evaluation import current_versions
from fle.fitting.runs import load
from fle.recipe import Resolved

QUICK = fle.Recipe(steps=20, batch_size=50, weight_decay=0.0)
LINEAR = fle.Gaussian(hidden=())
SMALL_GMM = fle.GMM(components=2, hidden=(4,))


class StopError(Exception):
    """What interrupts a fit here."""


class StopAfter:
    """A progress that stops the fit after a stage, and remembers the stages it saw."""

    def __init__(self, stage=None):
        self.stage = stage
        self.seen = []

    def start(self, stages, title):
        self.title = title

    def advance(self, stage, loss):
        self.seen.append(stage)
        if stage == self.stage:
            raise StopError

    def finish(self):
        pass


@pytest.fixture(autouse=True)
def every_stage(monkeypatch):
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0.0)


def evaluate(out=None, progress=None, data=None, **settings):
    settings = {"model": LINEAR, "recipe": QUICK, "horizon": 4, "seed": 2, **settings}
    data = cycle(200) if data is None else data
    return fle.evaluate(data, [1.0], out=out, progress=progress, **settings)


def interrupt(out, stage, **settings):
    with pytest.raises(StopError):
        evaluate(out, StopAfter(stage), **settings)


def assert_same(first, second):
    assert len(first.fits) == len(second.fits)
    for a, b in zip(first.fits, second.fits, strict=True):
        ours, theirs = array_leaves(a), array_leaves(b)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    for a, b in zip(first.records, second.records, strict=True):
        assert str(replace(a, seconds=0.0)) == str(replace(b, seconds=0.0))
    assert (first.notes, first.warnings) == (second.notes, second.warnings)
    assert np.array_equal(first.returns.samples, second.returns.samples)


ONE_OPTIMISER = replace(QUICK, schedule="fit", frame_tolerance=0.1, weight_decay=0.03)
PROBLEMS = {
    "finite": {},
    "weight decay is chosen": {
        "recipe": replace(QUICK, weight_decay="held-out"),
        "data": cycle(400),
    },
    "fresh starts": {"recipe": replace(QUICK, start="fresh")},
    "rows of their own": {"rows": "split"},
    "weighted rows": {"data": cycle(200).with_weights(np.arange(200) % 3)},
    "discounted": {
        "horizon": None,
        "gamma": 0.8,
        "stages": 7,
        "model": SMALL_GMM,
        "recipe": ONE_OPTIMISER,
    },
}


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_interrupted_after_two_stages(problem, tmp_path):
    undisturbed = evaluate(**problem)
    number = len(undisturbed.records)
    out = tmp_path / "run"
    interrupt(out, 1, **problem)
    interrupt(out, 3, **problem)
    progress = StopAfter()
    resumed = evaluate(out, progress, **problem)
    # Only what was left to do was done.
    assert progress.seen == list(range(4, number + 1))
    assert "from stage 4" in progress.title
    assert_same(undisturbed, resumed)
    assert_same(undisturbed, load(out))


def test_the_optimiser_of_a_whole_fit_is_carried_on(tmp_path):
    """Without it the result would be another: Adam would count its steps from 0 again."""
    problem = PROBLEMS["discounted"]
    interrupt(tmp_path, 3, **problem)
    (path,) = sorted((tmp_path / "checkpoints").glob("*3.safetensors"))
    arrays = checkpoints.read_tensors(path).arrays
    counts = [value for name, value in arrays.items() if name.startswith("optimiser/adam")]
    assert any(value.shape == () and value == 3 * ONE_OPTIMISER.steps for value in counts)


def test_the_last_two_checkpoints_are_kept(tmp_path):
    evaluate(tmp_path)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["stage-000003.safetensors", "stage-000004.safetensors"]


def test_short_stages_do_not_each_get_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 1e6)
    evaluate(tmp_path)
    (only,) = (tmp_path / "checkpoints").iterdir()
    assert only.name == "stage-000004.safetensors"


def test_a_finished_run_is_loaded(tmp_path):
    first = evaluate(tmp_path)
    progress = StopAfter()
    second = evaluate(tmp_path, progress)
    assert progress.seen == []
    assert_same(first, second)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 3}, r"seed \(2 in the run, 3 now\)"),
        ({"recipe": replace(QUICK, steps=21)}, r"recipe.steps \(20 in the run, 21 now\)"),
        ({"model": fle.Gaussian(hidden=(), std=1.0)}, r"model.std \(None in the run, 1.0 now\)"),
        ({"horizon": 5}, r"horizon \(4 in the run, 5 now\)"),
        ({"data": cycle(200, noise=0.2)}, r"data \([0-9a-f]{12} in the run, [0-9a-f]{12} now\)"),
    ],
)
@pytest.mark.parametrize("stage", [2, 4], ids=["stopped", "finished"])
def test_other_data_or_settings_are_refused(stage, changes, message, tmp_path):
    if stage == 4:
        evaluate(tmp_path)
    else:
        interrupt(tmp_path, stage)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(SettingsError, match=f"has another fingerprint: {message}.*`out`"):
        evaluate(tmp_path, **changes)
    assert before == {path: path.read_bytes() for path in before}


def test_another_policy_is_refused(tmp_path):
    data = fle.Dataset(
        observations=np.arange(100) % 2,
        actions=np.arange(100) // 2 % 2,
        rewards=np.arange(100) % 5 / 5,
        next_observations=np.arange(100) % 2,
        terminations=np.ones(100, bool),
        truncations=np.zeros(100, bool),
    )
    settings = {"horizon": 2, "model": LINEAR, "recipe": QUICK, "out": tmp_path}
    fle.evaluate(data, [0.5, 0.5], **settings)
    with pytest.raises(SettingsError, match=r"another fingerprint: policy \("):
        fle.evaluate(data, [0.4, 0.6], **settings)


def test_settings_may_change_while_nothing_is_trained(tmp_path):
    with pytest.raises(FLEError):
        evaluate(tmp_path, model=fle.LinearQuadratic(1.0))
    assert (tmp_path / "run.json").exists()
    assert_same(evaluate(tmp_path), evaluate())


def test_other_versions_are_said(tmp_path, monkeypatch):
    interrupt(tmp_path, 2)
    versions = current_versions()
    # By its name in `sys.modules`: the package has a function of the name of this module.
    module = sys.modules["fle.fitting.planning"]
    monkeypatch.setattr(module, "current_versions", lambda: versions | {"jax": "99.0"})
    with pytest.warns(FLEWarning, match=r"other versions \(jax .* is now 99.0\)"):
        resumed = evaluate(tmp_path)
    assert any("99.0" in warning for warning in resumed.warnings)


def damage(path, kind):
    content = bytearray(path.read_bytes())
    if kind == "cut":
        content = content[: len(content) // 2]
    elif kind == "empty":
        content = bytearray()
    else:
        content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("kind", ["cut", "empty", "flipped"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_offered(kind, tmp_path):
    interrupt(tmp_path, 3)
    damage(tmp_path / "checkpoints" / "stage-000003.safetensors", kind)
    message = r'stage-000003.safetensors .*damaged.*sha256.*resume="previous".*from stage-000002'
    with pytest.raises(FLEError, match=message):
        evaluate(tmp_path)
    progress = StopAfter()
    resumed = evaluate(tmp_path, progress, resume="previous")
    assert progress.seen == [3, 4]
    assert_same(resumed, evaluate())


def test_the_first_checkpoint_is_damaged(tmp_path):
    interrupt(tmp_path, 1)
    damage(tmp_path / "checkpoints" / "stage-000001.safetensors", "flipped")
    with pytest.raises(FLEError, match='resume="previous" the run goes on from the beginning'):
        evaluate(tmp_path)
    assert_same(evaluate(tmp_path, resume="previous"), evaluate())


def test_a_damaged_result_can_be_made_again(tmp_path):
    first = evaluate(tmp_path)
    damage(tmp_path / "model.safetensors", "flipped")
    for read in (evaluate, load):
        with pytest.raises(FLEError, match=r'model.safetensors is not the file.*resume="previous"'):
            read(tmp_path)
    assert_same(first, evaluate(tmp_path, resume="previous"))
    assert_same(first, load(tmp_path))


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    interrupt(tmp_path / "one", 2)
    interrupt(tmp_path / "two", 2, seed=3)
    name = "checkpoints/stage-000002.safetensors"
    (tmp_path / "one" / name).write_bytes((tmp_path / "two" / name).read_bytes())
    with pytest.raises(FLEError, match="belongs to another run"):
        evaluate(tmp_path / "one")


def test_a_loss_that_is_not_a_number_keeps_the_last_good_stage(tmp_path, monkeypatch):
    """The third stage is poisoned; the second is on the disk even if no file was due."""
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 1e6)
    rates = Resolved.learning_rates
    healthy = evaluate()

    def poisoned(self, stage, stages):
        return rates(self, stage, stages) * (np.float32(np.nan) if stage == 2 else 1)

    monkeypatch.setattr(Resolved, "learning_rates", poisoned)
    with pytest.raises(TrainingError, match="stage 3 of 4"):
        evaluate(tmp_path)
    (kept,) = (tmp_path / "checkpoints").iterdir()
    assert kept.name == "stage-000002.safetensors"
    monkeypatch.setattr(Resolved, "learning_rates", rates)
    progress = StopAfter()
    assert_same(healthy, evaluate(tmp_path, progress))
    assert progress.seen == [3, 4]


def test_resume_has_two_values(tmp_path):
    with pytest.raises(SettingsError, match='resume: expected "latest" or "previous"'):
        evaluate(tmp_path, resume="never")
    assert not list(tmp_path.iterdir())
