"""Adapters to other packages; fakes stand in for them, with torch itself where there is one."""

import contextlib
import importlib.util
import sys
import types

import numpy as np
import pytest

from fle.errors import PolicyError, SettingsError
from fle.policies import (
    Deterministic,
    Probabilities,
    Stochastic,
    from_d3rlpy,
    from_stable_baselines3,
    from_torch,
    tabulate,
)

OBSERVATIONS = np.random.default_rng(0).normal(size=(400, 2))
PROBABILITIES = np.array([0.2, 0.3, 0.5])
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed here"
)


class FakeTensor:
    """As much of a tensor as the adapters touch."""

    def __init__(self, values):
        self.values = values

    def detach(self):
        return self

    cpu = detach

    def numpy(self):
        return self.values


class FakeTorch(types.ModuleType):
    """A global stream of random numbers that can be seeded and put aside, as torch has."""

    def __init__(self):
        super().__init__("torch")
        self.generator = np.random.default_rng(99)
        self.random = types.SimpleNamespace(fork_rng=self._fork)
        self.no_grad = contextlib.nullcontext

    @contextlib.contextmanager
    def _fork(self):
        before = self.generator
        yield
        self.generator = before

    def manual_seed(self, seed):
        self.generator = np.random.default_rng(seed)


@pytest.fixture
def torch_stand_in(monkeypatch):
    fake = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def space(name):
    return type(name, (), {})()


class FakeModel:
    """A Stable-Baselines3 model; `predict` is greedy unless it is told to draw."""

    def __init__(self, torch, space_name, distribution=True):
        self.torch = torch
        self.action_space = space(space_name)
        methods = {"obs_to_tensor": lambda observations: (FakeTensor(observations), True)}
        if distribution:
            methods["get_distribution"] = self._distribution
        self.policy = types.SimpleNamespace(**methods)

    def _distribution(self, tensor):
        rows = np.tile(PROBABILITIES, (len(tensor.values), 1))
        return types.SimpleNamespace(distribution=types.SimpleNamespace(probs=FakeTensor(rows)))

    def predict(self, observations, deterministic=False):
        rows = len(observations)
        if type(self.action_space).__name__ == "Discrete":
            return np.full(rows, 2), None
        noise = 0 if deterministic else self.torch.generator.normal(size=(rows, 2))
        return observations + noise, None


def discrete(policy, **settings):
    return tabulate(policy, OBSERVATIONS, number_of_actions=3, action_dim=None, **settings)


def continuous(policy, **settings):
    return tabulate(policy, OBSERVATIONS, number_of_actions=None, action_dim=2, **settings)


def test_stable_baselines_probabilities_are_not_the_greedy_action(torch_stand_in):
    model = FakeModel(torch_stand_in, "Discrete")
    policy = from_stable_baselines3(model)
    assert isinstance(policy, Probabilities)
    np.testing.assert_allclose(discrete(policy).probabilities, np.tile(PROBABILITIES, (400, 1)))
    greedy = from_stable_baselines3(model, actions="greedy")
    np.testing.assert_array_equal(discrete(greedy).actions, 2)


def test_stable_baselines_without_a_distribution_is_greedy(torch_stand_in):
    policy = from_stable_baselines3(FakeModel(torch_stand_in, "Discrete", distribution=False))
    assert isinstance(policy, Deterministic)
    np.testing.assert_array_equal(discrete(policy).actions, 2)


def test_stable_baselines_draws_continuous_actions_from_our_seed(torch_stand_in):
    model = FakeModel(torch_stand_in, "Box")
    policy = from_stable_baselines3(model)
    assert isinstance(policy, Stochastic)
    before = torch_stand_in.generator
    table = continuous(policy, draws=8, seed=1)
    assert torch_stand_in.generator is before
    # 6400 standard normal numbers: five standard errors, false alarms below 1e-6.
    noise = table.actions - OBSERVATIONS[:, None]
    assert abs(noise.std() - 1) < 5 / np.sqrt(2 * noise.size)
    np.testing.assert_array_equal(table.actions, continuous(policy, draws=8, seed=1).actions)
    assert (table.actions != continuous(policy, draws=8, seed=2).actions).all()
    greedy = continuous(from_stable_baselines3(model, actions="greedy"))
    np.testing.assert_array_equal(greedy.actions[:, 0], OBSERVATIONS)


def test_stable_baselines_with_actions_of_another_sort(torch_stand_in):
    with pytest.raises(PolicyError, match="action space is MultiDiscrete"):
        from_stable_baselines3(FakeModel(torch_stand_in, "MultiDiscrete"))
    with pytest.raises(SettingsError, match="'best'"):
        from_stable_baselines3(FakeModel(torch_stand_in, "Box"), actions="best")


class FakeAlgorithm:
    """A d3rlpy algorithm."""

    def __init__(self, torch):
        self.torch = torch

    def predict(self, x):
        assert x.dtype == np.float32
        return np.full(len(x), 2)

    def sample_action(self, x):
        assert x.dtype == np.float32
        return self.torch.generator.choice(3, size=len(x), p=PROBABILITIES)


class Cloning(FakeAlgorithm):
    def sample_action(self, x):
        raise NotImplementedError


def test_d3rlpy_draws_unless_asked_for_its_greedy_action(torch_stand_in):
    algorithm = FakeAlgorithm(torch_stand_in)
    table = discrete(from_d3rlpy(algorithm), draws=16)
    # 6400 draws: five standard errors of a share are at most 0.031.
    shares = np.bincount(table.actions.ravel(), minlength=3) / table.actions.size
    np.testing.assert_allclose(shares, PROBABILITIES, atol=0.032)
    np.testing.assert_array_equal(
        discrete(from_d3rlpy(algorithm, actions="greedy")).actions[:, 0], 2
    )


def test_d3rlpy_without_a_distribution_says_so(torch_stand_in):
    with pytest.raises(PolicyError, match=r'Cloning has no distribution.*actions="greedy"'):
        discrete(from_d3rlpy(Cloning(torch_stand_in)))


def test_torch_modules_must_be_in_evaluation_mode():
    with pytest.raises(PolicyError, match=r"call module.eval\(\) first"):
        from_torch(types.SimpleNamespace(training=True), kind="logits")
    with pytest.raises(SettingsError, match="expected probs, logits, action"):
        from_torch(lambda x: x, kind="logit")


@needs_torch
def test_torch_modules_answer_as_their_kind_says():
    import torch

    weights = torch.tensor([[1.0, -1.0, 0.5], [0.0, 2.0, 1.0]])
    scores = OBSERVATIONS @ weights.numpy()
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    for kind, module in (
        ("logits", lambda x: x @ weights),
        ("probs", lambda x: (x @ weights).softmax(-1)),
    ):
        table = discrete(from_torch(module, kind=kind))
        np.testing.assert_allclose(table.probabilities, expected, rtol=1e-4, atol=1e-6)
    greedy = from_torch(lambda x: (x @ weights).argmax(-1), kind="action")
    np.testing.assert_array_equal(discrete(greedy).actions[:, 0], scores.argmax(axis=1))
    double = from_torch(lambda x: 2 * x, kind="action")
    np.testing.assert_allclose(continuous(double).actions[:, 0], 2 * OBSERVATIONS, rtol=1e-6)
    for kind, spread in (
        ("mean_std", torch.full((2,), 0.5)),
        ("mean_log_std", torch.tensor(0.5).log().expand(2)),
    ):
        table = continuous(from_torch(lambda x, s=spread: (x, s), kind=kind), draws=16)
        noise = table.actions - OBSERVATIONS[:, None]
        # 12,800 numbers: five standard errors of a standard deviation.
        assert abs(noise.std() / 0.5 - 1) < 5 / np.sqrt(2 * noise.size)


@needs_torch
def test_a_real_module_with_dropout_gives_the_same_answer_twice():
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Dropout(0.5))
    with pytest.raises(PolicyError, match="training mode"):
        from_torch(module, kind="logits")
    policy = from_torch(module.eval(), kind="logits")
    first, second = discrete(policy).probabilities, discrete(policy).probabilities
    np.testing.assert_array_equal(first, second)
