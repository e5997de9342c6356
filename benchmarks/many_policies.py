"""200 policies at once: what it takes beside one evaluation, and how good the one ranked first is.

Two families whose truth is known. Controllers of the bundled CartPole log, with returns from its
simulator, all fitted as by default: time, and a few repetitions with other controllers. A random
tabular problem with the exact mean, a new log and new policies in each of many repetitions, fitted
in closed form.

    python benchmarks/many_policies.py --repetitions 100 --families 3

writes `benchmarks/results/many_policies.json` after every repetition, beside those of other seeds
that are there. The bars are 20 times the CPU
time of one evaluation, and a first of the ranking that is within 0.05 standard deviations of the
best in 95% of repetitions.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import gymnasium
import numpy as np

import fle
from fle import examples
from fle.paper.environment import describe
from fle.screen import Silent
from fle.tasks import monte_carlo_returns, policy_function, random_mdp, random_policy

POLICIES, BUDGET = 200, 12
BAR_TIME, BAR_REGRET, BAR_SHARE = 20.0, 0.05, 0.95
# Push to where the pole falls: the rule of the bundled policies.
RULE = np.array([0.02, 0.05, 1.0, 0.5])
TRUE_EPISODES, TRUE_STEPS = 6_000, 300
# As many rows as the bundled log has.
STATES, ACTIONS, ROWS, GAMMA = 8, 3, 29_000, 0.6


def controllers(seed):
    """(200, 4) The rule with other gains, each push drawn from a logistic law."""
    generator = np.random.default_rng(seed)
    firmness = np.exp(generator.uniform(np.log(0.4), np.log(4.0), (POLICIES, 1)))
    gains = RULE * np.exp(0.5 * generator.standard_normal((POLICIES, 4)))
    noise = np.array([0.3, 0.5, 1.0, 0.7]) * generator.standard_normal((POLICIES, 4))
    return firmness * (gains + 0.15 * noise)


def pushes(gains):
    return lambda observations: 1 / (1 + np.exp(-observations.astype(float) @ gains))


def as_policy(gains):
    push = pushes(gains)

    def policy(observations):
        right = push(observations)
        return np.stack([1 - right, right], axis=1)

    return policy


def simulated(gains, gamma):
    """Mean and standard deviation of the return."""
    push = pushes(gains)
    returns = monte_carlo_returns(
        lambda: gymnasium.make_vec(
            "CartPole-v1", 2000, vectorization_mode="vector_entry_point", max_episode_steps=10_000
        ),
        lambda observations, generator: (
            generator.random(len(observations)) < push(observations)
        ).astype(int),
        episodes=TRUE_EPISODES,
        gamma=gamma,
        horizon=TRUE_STEPS,
        seed=1,
        environments=2000,
    )
    return float(returns.mean()), float(returns.std())


def cpu(function):
    began = time.process_time()
    result = function()
    return result, time.process_time() - began


def judged(found, means, stds):
    """How far the first of the ranking is behind the best, and where the best went."""
    best = max(means, key=means.get)
    first = found.ranking()[0][0]
    dropped = [name for name, left in found.unfitted.items() if left.worse]
    return {
        "behind": (means[best] - means[first]) / stds[best],
        "best_dropped": best in dropped,
        "best_fitted": best in found.evaluations,
        "dropped": len(dropped),
        "undecided": len(found.unfitted) - len(dropped),
        "fitted": len(found.evaluations),
        "refused": len(found.refused),
    }


def cartpole(seed):
    example = examples.load("cartpole")
    data = fle.read(example.data_path)
    target = fle.load_policy(example.policy_path)
    question = {"gamma": example.gamma, "progress": Silent()}
    _, one = cpu(lambda: fle.evaluate(data, target, **question))
    gains = {f"controller-{i:03d}": g for i, g in enumerate(controllers(seed))}
    policies = {name: as_policy(g) for name, g in gains.items()}
    # It is the ranking that is measured, whatever the verdicts of those that are fitted.
    found, many = cpu(lambda: fle.compare(data, policies, **question, budget=BUDGET, anyway=True))
    truth = {name: simulated(g, example.gamma) for name, g in gains.items()}
    means, stds = ({name: pair[i] for name, pair in truth.items()} for i in (0, 1))
    errors = [(found.returns[name].mean() - means[name]) / stds[name] for name in found.evaluations]
    return {
        "seed": seed,
        "cpu_of_one": one,
        "cpu_of_all": many,
        "ratio": many / one,
        "true_error": max(stds.values()) / np.sqrt(TRUE_EPISODES),
        "mean_errors_of_fits": errors,
        **judged(found, means, stds),
    }


def tabular(seed):
    task = random_mdp(STATES, ACTIONS, seed, termination=0.02)
    data = fle.Dataset(**task.offline_data(ROWS, seed))
    generator = np.random.default_rng([seed, 1])
    # Around one good policy, each wrong elsewhere: many are about as good.
    values, _ = task.discounted_moments(random_policy(STATES, ACTIONS, seed), GAMMA)
    values /= values.std(axis=1, keepdims=True)
    policies = {}
    for place in range(POLICIES):
        noise = generator.standard_normal((STATES, ACTIONS))
        scores = np.exp(2.0 * (values + noise))
        policies[f"policy-{place:03d}"] = scores / scores.sum(axis=1, keepdims=True)
    means, stds = {}, {}
    for name, policy in policies.items():
        mean, variance = task.discounted_moments(policy, GAMMA)
        chances = task.initial[:, None] * policy
        means[name] = float(np.sum(chances * mean))
        second = float(np.sum(chances * (variance + mean**2)))
        stds[name] = float(np.sqrt(second - means[name] ** 2))
    features = np.eye(STATES * ACTIONS)
    model = fle.Linear(lambda states, actions: features[states * ACTIONS + actions])
    found = fle.compare(
        data,
        {name: policy_function(policy) for name, policy in policies.items()},
        gamma=GAMMA,
        model=model,
        second_opinions=False,
        budget=BUDGET,
        progress=Silent(),
        anyway=True,
    )
    return {"seed": seed, **judged(found, means, stds)}


def shares(rows):
    """Over repetitions: how often the bar is met, and how often the best was dropped."""
    if not rows:
        return None
    return {
        "repetitions": len(rows),
        "within_the_bar": float(np.mean([r["behind"] <= BAR_REGRET for r in rows])),
        "best_dropped": float(np.mean([r["best_dropped"] for r in rows])),
        "largest_behind": float(max(r["behind"] for r in rows)),
        "median_fitted": float(np.median([r["fitted"] for r in rows])),
        "median_dropped": float(np.median([r["dropped"] for r in rows])),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=100, help="of the tabular problem")
    parser.add_argument("--families", type=int, default=3, help="of CartPole controllers")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "results" / "many_policies.json"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed of both")
    options = parser.parse_args()
    warnings.simplefilter("ignore", fle.FLEWarning)
    parts = {"cartpole": (cartpole, options.families), "tabular": (tabular, options.repetitions)}
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    results = {name: kept.get(name, {}).get("rows", []) for name in parts}
    for name, (measure, number) in parts.items():
        for seed in range(options.first, options.first + number):
            others = [row for row in results[name] if row["seed"] != seed]
            results[name] = [*others, measure(seed)]
            print(name, json.dumps(results[name][-1]), flush=True)
            document = {
                **describe(),
                "policies": POLICIES,
                "budget": BUDGET,
                "bars": {"time": BAR_TIME, "behind": BAR_REGRET, "share": BAR_SHARE},
                **{n: {"summary": shares(rows), "rows": rows} for n, rows in results.items()},
            }
            options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
