"""Every task has a valid log, a valid policy and a truth; the split is complete."""

import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import fle
from fle.policies import tabulated

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]

from tasks import register  # noqa: E402
from tasks.acrobot import Acrobot  # noqa: E402
from tasks.cartpole import CartPole  # noqa: E402
from tasks.chain import Chain  # noqa: E402
from tasks.mountain_car import ContinuousMountainCar, MountainCar  # noqa: E402
from tasks.pendulum import Pendulum  # noqa: E402
from tasks.simulation import Simulated  # noqa: E402
from tasks.task import DiscretePolicy, Event, below, logged_events, mostly  # noqa: E402

NOT_FAMILIES = {
    "__init__",
    "gym_rollouts",
    "measurement",
    "overlap",
    "register",
    "run",
    "simulation",
    "state_tables",
    "table",
    "task",
}
TASKS = register.available_tasks()
EXACT = [task for task in TASKS if task.exact_mean is not None]
FIRSTS = list({task.family: task for task in TASKS}.values())
ROWS = 250


def named(tasks):
    return pytest.mark.parametrize("task", tasks, ids=lambda task: task.name)


def test_every_module_is_a_family_once():
    families = [family.name for family in register.FAMILIES]
    modules = {path.stem for path in (BENCHMARKS / "tasks").glob("*.py")}
    assert len(families) == len(set(families)) >= 14
    assert set(families) == modules - NOT_FAMILIES


def test_the_split_is_the_one_written_down():
    text = (BENCHMARKS / "tasks" / "README.md").read_text(encoding="utf-8")
    written = re.findall(r"^\| (development|validation) \| (\w+) \|", text, flags=re.MULTILINE)
    assert sorted(written) == sorted((family.set, family.name) for family in register.FAMILIES)


@pytest.mark.parametrize("name", register.SETS)
def test_both_sets_have_every_kind(name):
    tasks = [task for task in TASKS if register.set_of(task) == name]
    kinds = {isinstance(task.source.policy, DiscretePolicy) for task in tasks}
    assert kinds == {True, False}
    assert {task.source.horizon is None for task in tasks} == {True, False}
    assert {task.covered for task in tasks} == {True, False}
    # Vector returns, by the two families that need nothing but NumPy.
    vectors = {"development": "recommender-clicks_and_revenue", "validation": "queueing-two_costs"}
    task = next(task for task in tasks if task.name == vectors[name])
    assert task.source.truth(5, 0).shape == (5, 2)


@pytest.mark.parametrize("family", register.FAMILIES, ids=lambda family: family.name)
def test_every_family_has_two_tasks(family):
    if family.missing:
        pytest.skip(f"needs {', '.join(family.missing)}")
    assert len(family.tasks()) >= 2
    assert {task.family for task in family.tasks()} == {family.name}
    assert len({id(task.source.policy) for task in family.tasks()}) >= 2


def test_names_are_unique_and_files_can_have_them():
    names = [task.name for task in TASKS]
    assert len(names) == len(set(names))
    assert all(task.truth_size >= 10_000 for task in TASKS)
    assert all(re.fullmatch(r"[a-z_]+-[a-z_]+", name) for name in names)


@named(TASKS)
def test_log_and_policy_are_valid(task):
    columns = task.source.log(ROWS, 0)
    assert not np.any(columns["terminations"] & columns["truncations"])
    with warnings.catch_warnings():
        # What the library remarks on a log so small is not the matter here.
        warnings.simplefilter("ignore", fle.FLEWarning)
        data = fle.Dataset(**columns)
        # Refuses what is no policy: probabilities must sum to one, actions have the right shape.
        tabulated(task.source.policy.target, data, draws=2)
    assert len(data) == ROWS
    assert np.isfinite(data.rewards).all()
    # Whatever the log ends with was cut, unless it terminated.
    assert columns["terminations"][-1] ^ columns["truncations"][-1]
    drawn = task.source.policy.act(columns["observations"], np.random.default_rng(0))
    assert drawn.shape == columns["actions"].shape
    assert drawn.dtype.kind == columns["actions"].dtype.kind


@named(FIRSTS)
def test_truth_repeats_by_seed(task):
    first = task.source.truth(4, 0)
    assert first.ndim == 2
    assert len(first) == 4
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, task.source.truth(4, 0))
    for event in task.events:
        assert event.happened(first).shape == (4,)


@named(EXACT)
def test_truth_has_the_exact_mean(task):
    """A false alarm has a chance of 7e-6 for each task, 2e-4 for all, at 4.5 standard errors."""
    n = 4_000
    returns = task.source.truth(n, 1)
    error = returns.mean(axis=0) - task.exact_mean()
    assert np.all(np.abs(error) < 4.5 * returns.std(axis=0) / np.sqrt(n))


@pytest.mark.parametrize(
    ("simulator", "name"),
    [
        (Acrobot(), "Acrobot-v1"),
        (CartPole(), "CartPole-v1"),
        (Pendulum(), "Pendulum-v1"),
        (MountainCar(), "MountainCar-v0"),
        (ContinuousMountainCar(), "MountainCarContinuous-v0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_simulators_step_as_gymnasium_does(simulator, name):
    gymnasium = pytest.importorskip("gymnasium")
    generator = np.random.default_rng(0)
    environment = gymnasium.make(name).unwrapped
    environment.reset(seed=0)
    widest = {"MountainCar-v0": [1.2, 0.07], "MountainCarContinuous-v0": [1.2, 0.07]}
    spread = widest.get(name, 1.5 * np.ones(simulator.initial(1, generator).shape[1]))
    states = np.asarray(spread) * generator.uniform(-1, 1, (200, len(spread)))
    if name == "CartPole-v1":
        # Beyond its limits Gymnasium has ended already.
        states *= [1.0, 1.0, 0.13, 1.0]
    count = simulator.number_of_actions
    actions = generator.integers(count, size=200) if count else generator.normal(0, 2, (200, 1))
    outcome = simulator.step(states, actions, generator)
    observed = simulator.observe(outcome.states)
    for i, action in enumerate(actions):
        environment.state = states[i].copy()
        environment.steps_beyond_terminated = None
        observation, reward, terminated, *_ = environment.step(action)
        # Gymnasium keeps some of its numbers in single precision.
        np.testing.assert_allclose(observed[i], observation, atol=2e-5)
        assert outcome.rewards[i] == pytest.approx(reward, abs=1e-5)
        assert outcome.terminations[i] == terminated


def test_starts_are_those_of_gymnasium():
    gymnasium = pytest.importorskip("gymnasium")
    for simulator, name in ((Acrobot(), "Acrobot-v1"), (Pendulum(), "Pendulum-v1")):
        environment = gymnasium.make(name)
        starts = np.stack([environment.reset(seed=i)[0] for i in range(300)])
        ours = simulator.observe(simulator.initial(300, np.random.default_rng(0)))
        # Two means of 300 each; 4.5 standard errors, a chance of 7e-6 for each of 9 coordinates.
        error = np.sqrt((starts.var(axis=0) + ours.var(axis=0)) / 300)
        assert np.all(np.abs(starts.mean(axis=0) - ours.mean(axis=0)) < 4.5 * error)


def test_a_time_limit_truncates_and_its_reward_counts():
    always = mostly(lambda observations: np.zeros(len(observations), int), 2, 0.0)
    source = Simulated(Chain(), always, always, longest=10, gamma=0.9)
    columns = source.log(25, 0)
    assert not columns["terminations"].any()
    # Episodes of 10, 10 and, where the log ends, 5.
    np.testing.assert_array_equal(np.flatnonzero(columns["truncations"]), [9, 19, 24])
    np.testing.assert_array_equal(np.bincount(columns["episodes"]), [10, 10, 5])
    level = columns["observations"][:, 1]
    np.testing.assert_allclose(columns["rewards"], 0.1 * level)


def test_logged_events_are_counted_by_episode():
    # Discounted returns: 1 + 0.5 * 2 = 2, -1, and 0.5 * -4 = -2.
    columns = {
        "episodes": np.array([0, 0, 1, 2, 2]),
        "rewards": np.array([1.0, 2.0, -1.0, 0.0, -4.0]),
    }
    assert logged_events(below(0.0, "a loss"), columns, gamma=0.5) == 2
    twice = Event("exactly two", lambda returns: returns[:, 0] == 2)
    assert logged_events(twice, columns, gamma=0.5) == 1


def test_tasks_are_chosen_by_set_family_or_name(monkeypatch):
    tasks, skipped = register.chosen_tasks("development", ["bandit", "chain-free"])
    assert {task.family for task in tasks} == {"bandit", "chain"}
    assert [task.name for task in tasks if task.family == "chain"] == ["chain-free"]
    assert skipped == []
    with pytest.raises(SystemExit, match="expected a task or a family"):
        register.chosen_tasks("development", ["mountain_car"])
    with pytest.raises(SystemExit, match="expected one of chain-free"):
        register.chosen_tasks(None, ["chain-unknown"])
    monkeypatch.setattr(register, "find_spec", lambda package: None)
    tasks, skipped = register.chosen_tasks(None, ["hopper"])
    assert tasks == []
    assert skipped == ["hopper: needs gymnasium, mujoco, imageio"]
