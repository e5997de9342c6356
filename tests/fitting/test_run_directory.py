"""What a run directory holds, and what `load` gives back."""

import json
import sys
from dataclasses import dataclass, replace

import numpy as np
import pytest
from object_store import object_store
from quick_fits import cycle
from quick_runs import QUICK, copied, evaluate
from scipy import stats

import fle
from fle.errors import FLEError, SettingsError
from fle.fitting import load
from fle.fitting.checkpoints import array_leaves
from fle.fitting.encoding import Encoder, Fitted, Frame
from fle.models.law import Sizes
from fle.models.support import support_of


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, and its evaluation."""
    out = tmp_path_factory.mktemp("runs") / "one"
    return evaluate(out=out), out


def test_files(finished):
    _, out = finished
    names = {path.name for path in out.iterdir()}
    expected = {"run.json", "result.json", "model.safetensors", "samples.parquet", "checkpoints"}
    assert names == expected | {".lock", "manifest.json"}
    listed = json.loads((out / "manifest.json").read_text())["files"]
    everything = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert listed.keys() == everything - {".lock", "manifest.json"}
    run = json.loads((out / "run.json").read_text())
    assert run["data"] == cycle(200).fingerprint
    assert run["seed"] == 0
    assert run["settings"]["horizon"] == 3
    assert run["settings"]["recipe"]["steps"] == QUICK.steps
    assert run["settings"]["model"] == {
        "name": "gaussian",
        "hidden": [],
        "std": None,
    }
    assert {"fle", "jax", "numpy", "python"} < run["versions"].keys()
    assert list(run) == sorted(run)


def test_the_same_call_writes_the_same_bytes(finished, tmp_path):
    _, out = finished
    evaluate(out=tmp_path)
    for name in ("run.json", "model.safetensors", "samples.parquet"):
        assert (out / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_samples_can_be_read_by_others(finished):
    import pyarrow.parquet as pq

    result, out = finished
    table = pq.read_table(out / "samples.parquet")
    assert table.column_names == ["reward"]
    assert np.array_equal(table["reward"].to_numpy(), result.returns.samples[:, 0])


def test_loaded_evaluation_answers_the_same(finished):
    result, out = finished
    loaded = load(out)
    assert np.array_equal(loaded.returns.samples, result.returns.samples)
    assert np.array_equal(loaded.returns.sample(50, seed=4), result.returns.sample(50, seed=4))
    for step in range(3):
        theirs, ours = loaded.at(3, 0, step=step), result.at(3, 0, step=step)
        assert np.array_equal(theirs.samples, ours.samples)
        assert theirs.log_prob(1.0) == ours.log_prob(1.0)
    assert repr(loaded) == repr(result)
    assert [str(record) for record in loaded.records] == [str(r) for r in result.records]
    for name in ("gamma", "horizon", "model", "notes", "warnings", "return_names", "provenance"):
        assert getattr(loaded, name) == getattr(result, name), name
    assert loaded.logged.summary == cycle(200).summary()
    assert (loaded.logged.rows, loaded.logged.episodes) == (200, 20)


def test_observed_returns_are_cut_and_discounted_as_the_evaluated_ones(finished):
    # Rewards are 1.1 and 0.9 in every other episode of ten steps that never terminates.
    _, out = finished
    logged = load(out).logged
    assert np.allclose(logged.returns[:, 0], np.tile([3.3, 2.7], 10))
    assert logged.complete.all()
    discounted = evaluate(gamma=0.5, horizon=None, stages=2).logged
    factor = (1 - 0.5**10) / 0.5
    assert np.allclose(discounted.returns[:, 0], np.tile([1.1 * factor, 0.9 * factor], 10))
    assert not discounted.complete.any()


@pytest.mark.filterwarnings("ignore:the first fit misses rare returns:fle.FLEWarning")
def test_vectors_names_and_notes_are_kept(tmp_path):
    noise = np.random.default_rng(0).normal(size=(200, 2))
    data = cycle(200)
    data = fle.Dataset(
        observations=data.observations,
        actions=data.actions,
        rewards=noise,
        next_observations=data.next_observations,
        terminations=np.ones(200, bool),
        reward_names=("énergie <b>", "speed"),
    )
    training = replace(QUICK, batch_size=500)
    result = evaluate(data, recipe=training, horizon=2, gamma=0.9, out=tmp_path)
    loaded = load(tmp_path)
    assert loaded.return_names == ("énergie <b>", "speed")
    assert np.array_equal(loaded.returns.samples, result.returns.samples)
    assert any("batch size 200" in note for note in loaded.notes)
    assert loaded.notes == result.notes


def test_a_run_in_an_object_store(finished, tmp_path, monkeypatch):
    """Its address is enough, and a changed run is refused there as here."""
    evaluation, out = finished
    copied(out, tmp_path / "run")
    (tmp_path / "run" / "notes of ours.txt").write_text("stays there")
    with object_store(tmp_path / "run", "runs/first", monkeypatch) as where:
        loaded = fle.load(f"s3://bucket/runs/first{where}")
        np.testing.assert_array_equal(loaded.returns.mean(), evaluation.returns.mean())
        with pytest.raises(FLEError, match=r"not a run directory|cannot be read"):
            fle.load(f"s3://bucket/runs/second{where}")
    (tmp_path / "run" / "result.json").write_text("{}")
    with (
        object_store(tmp_path / "run", "runs/first", monkeypatch) as where,
        pytest.raises(FLEError, match="is not the file that was written"),
    ):
        fle.load(f"s3://bucket/runs/first{where}")


def test_save_and_load_without_a_run(tmp_path, finished):
    result = evaluate()
    result.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert np.array_equal(loaded.returns.samples, result.returns.samples)
    # Once more, in the same place or from what was loaded, is no harm; another run is refused.
    result.save(tmp_path / "saved")
    loaded.save(tmp_path / "copy")
    name = "model.safetensors"
    copies = [(tmp_path / place / name).read_bytes() for place in ("saved", "copy")]
    assert copies[0] == copies[1]
    with pytest.raises(SettingsError, match=r"another fingerprint: seed \(0 in the run, 1 now\)"):
        evaluate(seed=1).save(tmp_path / "saved")
    assert evaluate(out=tmp_path / "saved").records[0].seconds == result.records[0].seconds


# Two have hyperparameters that no file can hold: laws, and a function.
UNWRITTEN = ("reward-mixture", "linear")
SPECS = {name: fle.models.family(name) for name in fle.models.names() if name not in UNWRITTEN}


@pytest.mark.parametrize("name", SPECS)
def test_every_model_is_given_back(name, finished, tmp_path):
    result, _ = finished
    exact = name == "linear-quadratic"
    spec = SPECS[name](noise_std=0.5) if exact else SPECS[name]()
    sizes = Sizes(2, 1, 1, not exact, not exact)
    generator = np.random.default_rng(1)
    frame = Frame(*np.float32([[0.5], [2.0]]))
    support = support_of(generator.integers(3, size=(90, 1)), np.float32([[0], [3]]))
    laws = [spec.build(sizes, result.recipe, generator) for _ in range(3)]
    fits = tuple(Fitted(law, frame, support) for law in laws)
    inputs = np.float32([[1, 0, 1], [0, 1, 1]])
    other = replace(
        result,
        model=spec,
        fits=fits,
        encoder=Encoder(sizes, np.zeros(2), np.ones(2), np.zeros(1), *np.ones((5, 1))),
        initial_inputs=inputs,
        initial_weights=np.array([0.25, 0.75]),
    )
    # Drawing from an untrained model takes long and is no part of this.
    other.__dict__["returns"] = fle.ReturnDistribution.from_samples([0.0, 1.0])
    other.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.model == spec
    for ours, theirs in zip(fits, loaded.fits, strict=True):
        ours, theirs = array_leaves(ours), array_leaves(theirs)
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[leaf], theirs[leaf]) for leaf in ours)


@dataclass(frozen=True)
class OwnGaussian(fle.Gaussian):
    """A family that fle does not know."""

    name = "own"


def test_a_model_of_ones_own_is_given_to_load(tmp_path):
    spec = OwnGaussian(hidden=())
    result = evaluate(model=spec, out=tmp_path)
    with pytest.raises(SettingsError, match=r"'own' that is not part of fle.*model="):
        load(tmp_path)
    assert np.array_equal(load(tmp_path, model=spec).returns.samples, result.returns.samples)
    with pytest.raises(SettingsError, match="was fitted with"):
        load(tmp_path, model=OwnGaussian(hidden=(4,)))


def test_a_model_with_laws_is_refused_before_training(tmp_path):
    out = tmp_path / "run"
    spec = fle.RewardMixture((stats.norm(0, 1),))
    with pytest.raises(SettingsError, match=r"RewardMixture cannot be saved: its laws"):
        evaluate(model=spec, out=out)
    assert not out.exists()


def test_without_pyarrow_a_run_has_all_but_the_samples(finished, tmp_path, monkeypatch):
    result, out = finished
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result.save(tmp_path / "run")
    assert not (tmp_path / "run" / "samples.parquet").exists()
    for path in (tmp_path / "run", out):
        assert np.array_equal(load(path).returns.samples, result.returns.samples)
