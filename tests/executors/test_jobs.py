"""Jobs: what they are called, that they are done once, and by whomever with one result."""

import dataclasses
import json
import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_jobs import LINEAR, RECIPE, Here, log, plan, same

import fle
from fle import executors
from fle.errors import FLEError, SettingsError, TrainingError
from fle.executors import Job, JobsFile, JobsWaitingError, Processes, Ray, Slurm
from fle.fitting import Silent, jobs
from fle.fitting.plan_files import PlanWriter, read_plan


@pytest.fixture(scope="module")
def plans(compiled_as_elsewhere):
    return {
        "first": plan(interval=fle.Interval(0.9, 2)),
        "second": plan(policy=(0.7, 0.3)),
    }


@pytest.fixture(scope="module")
def expected(plans):
    return fle.carry_out(plans)


def children():
    """The processes that this one started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == os.getpid() and b"fle.executors" in (entry.parent / "cmdline").read_bytes():
            found.append(int(entry.parent.name))
    return found


class Killing(Silent):
    """Kills all workers when the first job has ended."""

    def __init__(self):
        self.killed = 0

    def advance(self, stage, loss):
        for process in children() if stage == 1 else ():
            os.kill(process, signal.SIGKILL)
            self.killed += 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc")
def test_processes_give_the_same_though_all_are_killed(plans, expected, tmp_path):
    progress = Killing()
    found = fle.carry_out(plans, executor=Processes(2, folder=tmp_path), progress=progress)
    assert progress.killed == 2
    assert all(same(found[name], expected[name]) for name in plans)
    assert children() == []


@pytest.mark.parametrize("executor", [Here, lambda folder: Processes(1, folder=folder)])
def test_the_ceiling_of_memory_is_that_of_every_job(plans, tmp_path, executor):
    """Of a process that carries them out, too, and of one that another machine starts."""
    with (
        fle.memory_ceiling(2**20),
        pytest.raises(TrainingError, match=r"1 of 1 jobs failed.* below the ceiling"),
    ):
        fle.carry_out({"second": plans["second"]}, executor=executor(tmp_path))
    (written,) = tmp_path.glob("jobs-*.json")
    assert JobsFile.read(written).memory == 2**20


def test_what_is_finished_is_not_done_again(plans, expected, tmp_path):
    first = Here(tmp_path)
    found = fle.carry_out(plans, executor=first, out=tmp_path / "out")
    assert sorted(first.asked) == [
        "first",
        "first, fit",
        "first, replicate 1",
        "first, replicate 2",
        "second",
    ]
    assert all(same(found[name], expected[name]) for name in plans)
    assert all(same(fle.load(tmp_path / "out" / name), expected[name]) for name in plans)
    # More replicates go on from the same fit, and keep the ones that there are.
    more = {"more": plan(interval=fle.Interval(0.9, 3)), "second": plans["second"]}
    second = Here(tmp_path)
    fle.carry_out(more, executor=second)
    assert second.asked == ["more, replicate 3", "more"]


def test_a_call_that_was_stopped_goes_on(plans, expected, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        fle.carry_out(plans, executor=Here(tmp_path, stop_after=3))
    left = Here(tmp_path)
    found = fle.carry_out(plans, executor=left)
    assert len(left.asked) == 2
    assert all(same(found[name], expected[name]) for name in plans)


def test_a_failing_job_names_itself_and_the_others_finish(tmp_path):
    wild = dataclasses.replace(RECIPE, learning_rate=1e30)
    plans = {
        "wild": plan(recipe=wild, interval=fle.Interval(0.9, 2)),
        "calm": plan(policy=(0.7, 0.3)),
    }
    with pytest.raises(TrainingError, match=r"4 of 5 jobs failed.* wild, fit: The loss") as error:
        fle.carry_out(plans, executor=Here(tmp_path))
    assert "wild, replicate 1: needs wild, fit, which failed" in str(error.value)
    calm = Here(tmp_path)
    fle.carry_out({"calm": plans["calm"]}, executor=calm)
    assert calm.asked == []


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"gamma": 0.6},
        {"stages": 3},
        {"policy": (0.5, 0.5)},
        {"data": log(rewards=np.arange(300.0))},
        {"recipe": dataclasses.replace(RECIPE, draws=2)},
        {"model": fle.Gaussian(std=2.0, hidden=())},
        {"second_opinions": False},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_another_result_has_another_key(changes):
    assert jobs.job_key(plan(**changes)) != jobs.job_key(plan())


def test_the_same_result_has_the_same_key():
    named = log(observation_names=["a", "b", "c"])
    usual = plan()
    assert {jobs.job_key(plan()), jobs.job_key(plan(named))} == {jobs.job_key(usual)}
    keys = [jobs.job_key(usual), *(jobs.job_key(usual, replicate) for replicate in range(3))]
    assert len({*keys}) == 4
    # Intervals change what is made of the fit, and not the fit.
    wanted = plan(interval=0.9)
    assert jobs.job_key(wanted) != jobs.job_key(usual)
    assert jobs.job_key(wanted.without_interval()) == jobs.job_key(usual)
    other = dataclasses.replace(usual.provenance, versions={"jax": "0"})
    assert jobs.job_key(dataclasses.replace(usual, provenance=other)) != jobs.job_key(usual)


def test_a_plan_is_the_same_after_a_file(tmp_path):
    generator = np.random.default_rng(0)
    continuous = fle.Dataset(
        observations=generator.normal(size=(200, 2)),
        actions=generator.normal(size=(200, 1)),
        rewards=generator.normal(size=(200, 2)),
        next_observations=generator.normal(size=(200, 2)),
        terminations=np.arange(200) % 10 == 9,
        initial_observations=generator.normal(size=(20, 2)),
    )
    writer = PlanWriter(tmp_path)
    for planned in (plan(), fle.plan(continuous, lambda x: 0 * x[:, :1], horizon=3, model="gmm")):
        again = read_plan(tmp_path, writer.write(planned))
        assert_equal(again, planned)
        # Codes that all rows have are kept once, here as there.
        assert again.following.listed.shape == planned.following.listed.shape


# Fields that are not written, and others of their classes.
TOLD = {"model": "next_probabilities", "told_by": "pairs", "visits": "pairs"}


def assert_equal(ours, theirs):
    assert type(ours) is type(theirs)
    if isinstance(theirs, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    elif dataclasses.is_dataclass(theirs):
        for field in dataclasses.fields(theirs):
            # What told the log's own policy and its visits has said what was asked of it.
            if field.name not in TOLD or not hasattr(theirs, TOLD[field.name]):
                assert_equal(getattr(ours, field.name), getattr(theirs, field.name))
    elif isinstance(theirs, tuple | list):
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one, other)
    else:
        assert ours == theirs or (ours != ours and theirs != theirs)


def test_a_damaged_plan_is_not_carried_out(tmp_path):
    name = PlanWriter(tmp_path).write(plan())
    array = next((tmp_path / "arrays").iterdir())
    array.write_bytes(array.read_bytes()[:-1] + b"!")
    path = tmp_path / "plans" / f"{name}.json"
    from fle.fitting.plan_files import _loaded

    _loaded.cache_clear()
    with pytest.raises(FLEError, match="damaged"):
        read_plan(tmp_path, name)
    path.write_text(path.read_text().replace("0.5", "0.6"))
    with pytest.raises(FLEError, match="hash is another"):
        read_plan(tmp_path, name)


def test_other_versions_are_refused(tmp_path, monkeypatch):
    usual = jobs.current_versions()
    name = PlanWriter(tmp_path).write(plan())
    file = JobsFile.write(tmp_path, jobs.jobs_of(plan(), "it", name))
    monkeypatch.setattr(jobs, "current_versions", lambda: usual | {"jax": "0.0"})
    with pytest.raises(FLEError, match=r"it was written where versions are others \(jax .* 0.0"):
        jobs.run_job(file.path, 0)


@pytest.mark.parametrize(
    "entry",
    [{}, {"key": "../up"}, {"needs": ["a/b"]}, {"replicate": "one"}],
)
def test_a_damaged_jobs_file_is_refused(tmp_path, entry):
    path = tmp_path / "jobs.json"
    job = dataclasses.asdict(Job("a", "it", "fit", "b")) | {"needs": []}
    path.write_text(json.dumps({"format": 1, "jobs": [{**job, **entry} if entry else {}]}))
    with pytest.raises(FLEError, match="is not a job"):
        JobsFile.read(path)
    path.write_text("{}")
    with pytest.raises(FLEError, match="not a jobs file"):
        JobsFile.read(path)


def test_slurm_runs_the_array_and_the_call_gathers_it(expected, tmp_path, monkeypatch):
    # One task for all jobs, as where there are more of them than SLURM takes.
    monkeypatch.setattr(executors, "MOST_TASKS", 1)
    executor = Slurm(tmp_path / "jobs.sbatch", folder=tmp_path / "it's a folder")
    plans = {"second": plan(policy=(0.7, 0.3)), "third": plan(policy=(0.2, 0.8))}
    with pytest.raises(JobsWaitingError, match=r"2 jobs are in .*sbatch --wait"):
        fle.carry_out(plans, executor=executor)
    script = (tmp_path / "jobs.sbatch").read_text()
    assert "#SBATCH --array=0-0\n" in script
    # As SLURM would start the only task of the array.
    told = {**os.environ, "SLURM_ARRAY_TASK_ID": "0"}
    done = subprocess.run(  # noqa: S603
        ["bash", str(tmp_path / "jobs.sbatch")],  # noqa: S607
        env=told,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = fle.carry_out(plans, executor=executor)
    assert same(found["second"], expected["second"])


def test_slurm_writes_only_what_can_begin(tmp_path):
    executor = Slurm(tmp_path / "jobs.sbatch", folder=tmp_path)
    plans = {"one": plan(interval=fle.Interval(0.9, 2)), "two": plan(interval=0.9, seed=1)}
    with pytest.raises(JobsWaitingError, match=r"2 jobs are in .*, and 14 that need them"):
        fle.carry_out(plans, executor=executor)
    assert "#SBATCH --array=0-1\n" in (tmp_path / "jobs.sbatch").read_text()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Processes(0),
        lambda: Ray("nowhere"),
        lambda: Ray(cpus=-1.0),
        lambda: fle.evaluate(
            log(), [0.5, 0.5], gamma=0.5, model=LINEAR, recipe=RECIPE, executor=Ray("auto")
        ),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(SettingsError):
        make()


def test_a_model_of_ones_own_cannot_be_sent(tmp_path):
    features = fle.Linear(lambda x, a: x)
    own = plan(model=features, recipe=None)
    with pytest.raises(SettingsError, match="Linear cannot be saved"):
        fle.carry_out({"own": own}, executor=Here(tmp_path))
