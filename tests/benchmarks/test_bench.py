"""The bench: what peers are handed, and the page that is made of their answers."""

import sys
from pathlib import Path

import numpy as np
import pytest

import fle

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from peers.bench import added, judged, parsed, questions
from peers.bench_page import estimators, write_page
from peers.own_answers import DEFAULT, answers_to
from peers.questions import PeerLog, Question, is_discrete, padded, task_of


def test_a_horizon_ends_what_peers_are_handed():
    question = Question("inventory-careful", seed=0, rows=600)
    task = task_of(question)
    log = PeerLog.of(task, question)
    assert len(log.rewards) == 600
    assert log.observations.shape == (600, 2)
    last = log.positions == task.source.horizon - 1
    assert last.any()
    assert log.terminals[last].all()
    # A log's last episode may be cut anywhere; nothing else is.
    assert not log.timeouts[:-1].any()
    assert np.array_equal(log.plain(log.observations), log.observations[:, :1])


def test_peers_see_a_state_as_a_column_and_policies_as_its_number():
    question = Question("cliff_walking-slippery", seed=0, rows=300)
    task = task_of(question)
    log = PeerLog.of(task, question)
    columns = task.source.log(300, 0)
    assert np.array_equal(log.observations.sum(axis=1), np.ones(300))
    assert np.array_equal(log.plain(log.observations), columns["observations"])
    assert np.array_equal(log.plain(log.starts), columns["initial_observations"])


def test_a_mixed_policy_lies_between_the_tasks_own_and_a_uniform_one():
    own, mixed = (task_of(Question("inventory-steady", 0, 10, share)) for share in (0.0, 0.5))
    at = np.array([[0.0], [5.0], [12.0]])
    expected = 0.5 * own.source.policy.probabilities(at) + 0.5 / 7
    assert np.allclose(mixed.source.policy.probabilities(at), expected)
    assert is_discrete(mixed)
    assert mixed.name != own.name


def test_padding_leaves_returns_and_weights_as_they_are():
    question = Question("cliff_walking-slippery", seed=0, rows=400)
    log = PeerLog.of(task_of(question), question)
    ratio = np.random.default_rng(0).uniform(0.5, 2, len(log.rewards))
    longest, filled = padded(log, {"reward": (log.rewards, 0.0), "ratio": (ratio, 1.0)})
    first = np.flatnonzero(log.positions == 0)
    sums = np.add.reduceat(log.rewards, first)
    assert np.allclose(filled["reward"].reshape(-1, longest).sum(axis=1), sums)
    products = np.multiply.reduceat(ratio, first)
    assert np.allclose(filled["ratio"].reshape(-1, longest).prod(axis=1), products)


def test_questions_go_by_seed_and_ranked_tasks_have_several_policies():
    asked = questions(parsed(["--task", "inventory-steady", "--seeds", "2", "--rows", "50"]))
    assert [question.seed for question in asked] == [0] * 4 + [1] * 4
    assert sorted({question.mixed for question in asked}) == [0.0, 0.25, 0.5, 1.0]
    assert len({question.name for question in asked}) == 8
    assert parsed(["--task", "a", "--task", "b", "c"]).task == ["a", "b", "c"]


def test_what_is_above_the_ceiling_has_no_answer():
    request = {"question": {"task": "inventory-careful", "seed": 0, "rows": 50}, "models": False}
    with fle.memory_ceiling(1):
        answers = answers_to(request)
    assert "would take about" in answers[DEFAULT]["none"]
    assert all("none" in answer for answer in answers.values())
    assert parsed(["--memory", "1024"]).memory == 1024


@pytest.fixture
def lines(tmp_path, monkeypatch):
    """Three policies of one log, of which one estimator has the right law and one a wrong mean."""
    truth = np.random.default_rng(0).standard_normal((2000, 1))
    monkeypatch.setattr("peers.bench.true_returns", lambda task, folder: truth + shift)
    found = []
    for mixed, shift in ((0.0, 2.0), (0.25, 1.0), (0.5, 0.0)):
        right = {"atoms": (truth[:, 0] + shift).tolist(), "weights": [1] * 2000}
        answers = {
            "FLE": {**right, "seconds": 2.0, "memory": 1e9},
            "a peer": {"mean": -shift, "seconds": 1.0},
            "another": {"none": "no propensities"},
        }
        found += judged(Question("inventory-steady", 0, 100, mixed), answers, tmp_path)
    return found


def test_answers_are_held_against_the_truth(lines):
    ours, peer, another = lines[:3]
    assert ours["w1"] < 0.05
    assert abs(ours["mean"]) < 1e-9
    assert abs(ours["cvar"]) < 0.1
    # -2 where 2 is right, in standard deviations.
    assert peer["mean"] == pytest.approx(-4, rel=0.05)
    assert "w1" not in peer
    assert another["none"] == "no propensities"


def test_answers_are_added_to_earlier_ones(lines):
    again = [{**line, "commit": "new", "mean": 7.0} for line in lines[:2]]
    found = added(lines, again, "old")
    assert len(found) == len(lines)
    key = ("estimator", "mixed")
    by_name = {tuple(line[name] for name in key): line for line in found}
    assert by_name["FLE", 0.0]["mean"] == 7.0
    assert by_name["another", 0.0]["commit"] == "old"
    assert by_name["FLE", 0.25]["mean"] == lines[3]["mean"]
    assert [line["mixed"] for line in found] == sorted(line["mixed"] for line in found)


def test_the_page_ranks_policies_and_names_losses(lines, tmp_path):
    costs = {str(number): {"processor": 80.0, "elapsed": 200.0} for number in range(3)}
    facts = {"commit": "0" * 40, "machine": {"cores": 2, "cpu": "x"}, "costs": costs}
    assert estimators(lines) == ["FLE", "a peer", "another"]
    write_page(tmp_path / "bench.md", lines, facts)
    text = (tmp_path / "bench.md").read_text()
    assert "| FLE | 1 of 1 |" in text
    assert (
        "alone took 0 minutes of the processor for all 3 questions. All 3 questions took 4" in text
    )
    assert "none: no propensities" in text
    assert "| inventory-steady | 0.25 | 0 | 0000000 | a peer |" in text
    # It takes the worst of three for the best.
    assert "| a peer | -1.00 | 2.0" in text
    assert "| FLE | 1.00 | 0.000 |" in text
    assert "nearest of all in 1 of 1 comparisons" in text
    assert "None was nearer by more than 0.02" in text
    assert f"| a peer |  | 0.000, {abs(lines[1]['mean']):.3f} (1 of 1) |  |" in text
    assert (
        "On the median, W1/std: ahead of all; mean: ahead of all; CVaR 10%: ahead of all." in text
    )
    swapped = [
        {**x, "estimator": {"FLE": "b", "a peer": "FLE"}.get(x["estimator"], "c")} for x in lines
    ]
    write_page(tmp_path / "bench.md", swapped, facts)
    assert "mean: behind b" in (tmp_path / "bench.md").read_text()
    assert (
        f"| inventory-steady (0) | mean | {-lines[1]['mean']:.3f} | 0.000 | b |"
        in (tmp_path / "bench.md").read_text()
    )
