"""A damped cart with quadratic cost at gamma = .99: the mean of the return is known."""

import dataclasses

import numpy as np

from fle.tasks import LQR
from tasks.simulation import Outcome, Simulated
from tasks.task import FixedPolicy, NormalPolicy, Task, below

GAMMA = 0.99


class Cart:
    """States and rewards of an `LQR`; episodes never end."""

    number_of_actions = None

    def __init__(self, problem: LQR) -> None:
        self.problem = problem

    def initial(self, n, generator):
        return self.problem.initial_observations(n, generator)

    def observe(self, states):
        return states

    def step(self, states, actions, generator):
        noise = generator.normal(0, self.problem.noise_std, len(states))
        rewards = self.problem.expected_reward(states, actions) + noise
        moved = self.problem.next_observations(states, actions)
        return Outcome(moved, rewards, np.zeros(len(states), bool))


def mean_return(problem: LQR) -> float:
    """Over the initial states, which are uniform: the mean is quadratic in x.

    E[m(x)] = trace of the matrix of m, times the variance w²/3 of a coordinate. The matrix's
    diagonal is m at the unit vectors, as m(0) = 0.
    """
    unit = np.eye(problem.state_dim)
    diagonal = problem.discounted_mean(unit, problem.target_policy(unit), GAMMA)
    return float(diagonal.sum() * problem.initial_halfwidth**2 / 3)


def tasks() -> list[Task]:
    usual = dataclasses.replace(LQR.example(), noise_std=0.1)
    slack = dataclasses.replace(usual, K=np.array([[-0.4, -0.4]]))
    behaviour = NormalPolicy(usual.target_policy, 0.8)

    def task(name, problem, rows):
        policy = FixedPolicy(problem.target_policy)
        source = Simulated(Cart(problem), behaviour, policy, 50, GAMMA)
        return Task(
            f"lqr-{name}",
            source,
            rows=rows,
            events=(below(-4.0, "a return below -4"),),
            exact_mean=lambda: [mean_return(problem)],
        )

    return [
        task("firm", usual, 100_000),
        task("slack", slack, 100_000),
        task("small", usual, 2_000),
    ]
