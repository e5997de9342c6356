"""An evaluation from end to end: a lock opened by a careful policy, judged from random logs.

The policy never ran when the data was logged, yet its whole return distribution comes out, and is
shown beside the truth from simulation.
"""

import sys
import time
from pathlib import Path

import numpy as np

import fle
from fle.returns import sampling_floor, wasserstein
from fle.tasks import CombinationLock

OUT = Path("demo")
WIDTH = 46


def main() -> None:
    lock = CombinationLock(horizon=8)
    data = fle.Dataset(**lock.offline_data(4_000, seed=1))
    print(
        "A lock with 8 steps. One wrong action anywhere, and the reward is about -1 instead of +1."
    )
    print("The log took random actions. The target policy errs once in 14 steps.\n")
    print(data.summary(), "\n")

    began = time.perf_counter()
    result = fle.evaluate(data, lock.target_policy, horizon=8)
    seconds = time.perf_counter() - began

    generator = np.random.default_rng(0)
    truth = fle.ReturnDistribution.from_samples(lock.sample_policy_returns(100_000, generator))
    logged = fle.ReturnDistribution.from_samples(random_policy_returns(lock, 100_000, generator))
    print(f"Evaluated in {seconds:.0f} s, compilation included.\n")
    print_risks(result.returns, truth, logged)
    print_picture(result.returns, truth)
    print_distance(result.returns, lock)
    save_chart(result.returns, truth)


def random_policy_returns(
    lock: CombinationLock, number: int, generator: np.random.Generator
) -> np.ndarray:
    """What the logged behaviour itself would earn: every action right with probability 1/2."""
    good = generator.random(number) < 0.5**lock.horizon
    return lock.final_reward(np.where(good, 0, 1), generator)


def print_risks(
    estimate: fle.ReturnDistribution,
    truth: fle.ReturnDistribution,
    logged: fle.ReturnDistribution,
) -> None:
    rows = [
        ("mean", lambda law: law.mean()),
        ("standard deviation", lambda law: law.std()),
        ("chance of a loss (below 0)", lambda law: law.probability(below=0)),
        ("worst tenth, on average (CVaR)", lambda law: law.cvar(0.1)),
        ("5% quantile", lambda law: law.quantile(0.05)),
        ("95% quantile", lambda law: law.quantile(0.95)),
    ]
    print(f"{'':32}{'estimate':>10}{'truth':>10}{'behaviour':>12}")
    for name, question in rows:
        values = [question(law) for law in (estimate, truth, logged)]
        print(f"{name:32}{values[0]:10.3f}{values[1]:10.3f}{values[2]:12.3f}")
    print()


def print_picture(estimate: fle.ReturnDistribution, truth: fle.ReturnDistribution) -> None:
    edges = np.linspace(-1.4, 1.4, 29)
    masses = [
        np.histogram(law.sample(100_000, seed=3), edges)[0] / 100_000 for law in (estimate, truth)
    ]
    top = max(mass.max() for mass in masses)
    print("The distribution: bars are the estimate, the mark is the truth.")
    for low, high, bar, mark in zip(edges[:-1], edges[1:], *masses, strict=True):
        line = list("█" * round(WIDTH * bar / top) + " " * WIDTH)[: WIDTH + 1]
        line[min(round(WIDTH * mark / top), WIDTH)] = "◆"
        print(f"{(low + high) / 2:6.2f} {''.join(line).rstrip()}")
    print()


def print_distance(estimate: fle.ReturnDistribution, lock: CombinationLock) -> None:
    generator = np.random.default_rng(7)
    sample = estimate.sample(20_000, seed=7)
    distance = wasserstein(sample, lock.sample_policy_returns(20_000, generator))
    floor = sampling_floor(wasserstein, lambda g, n: lock.sample_policy_returns(n, g), 20_000)
    print(
        f"1-Wasserstein distance to the truth {distance:.4f}; between two samples of the truth "
        f"it is {floor.mean:.4f}."
    )


def save_chart(estimate: fle.ReturnDistribution, truth: fle.ReturnDistribution) -> None:
    """The same picture as a file, if Altair is installed."""
    try:
        import altair
    except ImportError:
        print("For a picture in a file: pip install 'fle[charts]'", file=sys.stderr)
        return
    points = np.linspace(-1.6, 1.6, 321)
    edges = np.linspace(-1.6, 1.6, 81)
    heights = np.histogram(truth.sample(100_000, seed=3), edges, density=True)[0]
    curve = [
        {"return": float(z), "density": float(p)}
        for z, p in zip(points, np.exp(estimate.log_prob(points)), strict=True)
    ]
    bars = [
        {"return": float(low), "density": float(height)}
        for low, height in zip(edges[:-1], heights, strict=True)
    ]
    chart = altair.layer(
        altair.Chart(altair.Data(values=bars))
        .mark_area(color="#c9d3dd", interpolate="step-after")
        .encode(
            x=altair.X("return:Q", title="return", scale=altair.Scale(domain=[-1.6, 1.6])),
            y=altair.Y("density:Q", title="density"),
        ),
        altair.Chart(altair.Data(values=curve))
        .mark_line(color="#c0392b", strokeWidth=2)
        .encode(x="return:Q", y="density:Q"),
    ).properties(
        width=560,
        height=300,
        title={
            "text": "Return of the target policy",
            "subtitle": "line: estimated from logs of random actions; bars: simulated truth",
        },
    )
    OUT.mkdir(exist_ok=True)
    chart.save(OUT / "returns.png", scale_factor=2)
    print(f"The picture is in {OUT / 'returns.png'}.")


if __name__ == "__main__":
    main()
