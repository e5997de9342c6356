"""The bundled examples are what they say: exact checks on the files, no training."""

import json

import numpy as np
import pytest

import fle
from fle import examples
from fle.errors import SettingsError
from fle.policies import load_policy, tabulate

MOST_BYTES = 1_000_000
FACTS = {
    name: json.loads((examples.FOLDER / name / "facts.json").read_text(encoding="utf-8"))
    for name in examples.NAMES
}


@pytest.fixture(scope="module", params=examples.NAMES)
def example(request):
    return examples.load(request.param)


@pytest.fixture(scope="module")
def data(example):
    return fle.read(example.data_path)


def test_every_folder_is_listed():
    folders = {path.parent.name for path in examples.FOLDER.glob("*/facts.json")}
    assert folders == set(examples.NAMES)


def test_the_files_are_small(example):
    assert sum(path.stat().st_size for path in example.data_path.parent.iterdir()) < MOST_BYTES


def test_the_log_reads_without_a_warning(example, data):
    facts = FACTS[example.name]
    assert data.warnings == ()
    assert len(data) == facts["rows"]
    assert data.number_of_episodes == facts["episodes"]
    assert data.terminations.sum() == facts["terminated"]
    assert data.truncations.sum() == facts["truncated"]


def test_the_truth_is_of_the_dimension_of_the_log(example, data):
    assert example.truth.shape == (FACTS[example.name]["true_returns"], data.return_dim)
    assert np.isfinite(example.truth).all()
    assert (example.truth.std(axis=0) > 0).all()


def test_a_problem_is_stated(example):
    assert (example.gamma is None) != (example.horizon is None)
    assert example.description


def test_the_target_policy_is_the_better_one(example, data):
    """Each coordinate, by more than four standard errors of the difference."""
    logged = data.observed_returns(1.0 if example.gamma is None else example.gamma)[0]
    variance = example.truth.var(axis=0) / len(example.truth) + logged.var(axis=0) / len(logged)
    gain = example.truth.mean(axis=0) - logged.mean(axis=0)
    assert (gain > 4 * np.sqrt(variance)).all()


def test_both_policies_load(example, data):
    for path in (example.policy_path, example.behaviour_path):
        table = tabulate(
            load_policy(path),
            data.observations[:50],
            number_of_actions=data.number_of_actions,
            action_dim=data.action_dim,
        )
        assert len(table) == 50


def test_the_behaviour_file_logged_the_cartpole_data():
    """Actions pushed right, against what the file says: a sum of independent coins.

    Four standard deviations: false alarm once in 16,000.
    """
    example = examples.load("cartpole")
    data = fle.read(example.data_path)
    table = tabulate(
        load_policy(example.behaviour_path),
        data.observations,
        number_of_actions=2,
        action_dim=None,
    )
    right = table.probabilities[:, 1]
    assert abs((data.actions - right).sum()) < 4 * np.sqrt((right * (1 - right)).sum())
    # Weighted by the angle, which a policy that ignored it would fail.
    angle = data.observations[:, 2]
    spread = np.sqrt((angle**2 * right * (1 - right)).sum())
    assert abs((angle * (data.actions - right)).sum()) < 4 * spread


def test_cartpole_rows_follow_its_dynamics():
    """Positions move by 0.02 s of velocity; every step pays 1; an end has left the limits."""
    data = fle.read(examples.load("cartpole").data_path)
    position, velocity = data.observations[:, 0], data.observations[:, 1]
    inside = ~data.terminations
    moved = data.next_observations[inside, 0] - position[inside]
    np.testing.assert_allclose(moved, 0.02 * velocity[inside], atol=1e-6)
    assert (data.rewards == 1).all()


def test_cartpole_truth_is_of_whole_numbers_of_steps():
    """A return of 1 a step over n steps is (1 - gamma^n) / (1 - gamma)."""
    example = examples.load("cartpole")
    steps = np.log1p(-(1 - example.gamma) * example.truth) / np.log(example.gamma)
    short = steps < 100  # later, float32 cannot tell one step from the next
    assert short.mean() > 0.5
    np.testing.assert_allclose(steps[short], np.round(steps[short]), atol=1e-3)


def test_reservoir_rewards_are_the_costs_it_names():
    """Flooding above level 50 after the month; shortage below a release of 50, within bounds."""
    data = fle.read(examples.load("reservoir").data_path)
    assert data.reward_names == ("flooding", "shortage")
    level, after = data.observations[:, 0], data.next_observations[:, 0]
    released = np.clip(data.actions[:, 0], np.maximum(level - 100, 0), level)
    np.testing.assert_allclose(data.rewards[:, 0], -np.maximum(after - 50, 0), atol=1e-4)
    np.testing.assert_allclose(data.rewards[:, 1], -np.maximum(50 - released, 0), atol=1e-4)


def test_reservoir_years_are_cut_off_not_ended():
    example = examples.load("reservoir")
    data = fle.read(example.data_path)
    assert not data.terminations.any()
    assert len(data) == example.horizon * data.number_of_episodes


def test_an_unknown_example_names_the_nearest():
    with pytest.raises(SettingsError, match="Did you mean 'cartpole'"):
        examples.load("cartpol")
