"""From a log to a report: what would a better controller earn, judged from a worse one's log?

    python examples/demo.py [NAME] [FOLDER]

NAME is a bundled example: cartpole (one reward) or reservoir (two). The target policy never ran
when the data was logged, yet its whole return distribution comes out. It is printed beside the
truth from simulation, and written to FOLDER/report.html.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fle
from fle import examples
from fle.report import write_report
from fle.report.truth import comparisons

QUESTIONS: dict[str, Callable[[fle.ReturnDistribution], object]] = {
    "mean": lambda law: law.mean(),
    "standard deviation": lambda law: law.std(),
    "mean of the worst tenth (CVaR)": lambda law: law.cvar(0.1),
    "5% quantile": lambda law: law.quantile(0.05),
    "median": lambda law: law.quantile(0.5),
    "95% quantile": lambda law: law.quantile(0.95),
}


def main(name: str = "cartpole", folder: str = "demo") -> None:
    example = examples.load(name)
    print(example.description, "\n")
    data = fle.read(example.data_path)
    policy = fle.load_policy(example.policy_path)
    print(data.summary(), "\n")

    began = time.perf_counter()
    result = fle.evaluate(data, policy, gamma=example.gamma, horizon=example.horizon)
    print(f"Evaluated in {time.perf_counter() - began:.0f} s, compilation included.\n")

    truth = fle.ReturnDistribution.from_samples(example.truth)
    logged = fle.ReturnDistribution.from_samples(data.observed_returns(result.gamma)[0])
    print_risks(result.returns, truth, logged, result.return_names)
    print_distance(result.returns, example.truth, result.return_names)

    report = Path(folder) / "report.html"
    report.parent.mkdir(parents=True, exist_ok=True)
    write_report(
        result, report, data=data, truth=example.truth, command=f"python examples/demo.py {name}"
    )
    print(f"The report is in {report}.")


def print_risks(
    estimate: fle.ReturnDistribution,
    truth: fle.ReturnDistribution,
    logged: fle.ReturnDistribution,
    names: tuple[str, ...],
) -> None:
    """What the target policy earns, by estimate and in truth, and what the logged one did."""
    for index, name in enumerate(names):
        laws = [
            law if len(names) == 1 else law.marginal(index) for law in (estimate, truth, logged)
        ]
        print(f"{name:32}{'estimate':>10}{'truth':>10}{'behaviour':>12}")
        for label, question in QUESTIONS.items():
            values = [float(np.asarray(question(law))) for law in laws]
            print(f"{label:32}{values[0]:10.2f}{values[1]:10.2f}{values[2]:12.2f}")
        print()


def print_distance(
    estimate: fle.ReturnDistribution, truth: np.ndarray, names: tuple[str, ...]
) -> None:
    """In standard deviations of the return, beside what chance alone would give."""
    overall = comparisons(estimate.samples, truth, names)[0]
    measure = "W1" if len(names) == 1 else "Sliced W1"
    print(
        f"{measure} to the truth: {overall.distance:.3f} standard deviations; between two samples "
        f"of the truth it is {overall.floor.mean:.3f}."
    )


if __name__ == "__main__":
    main(*sys.argv[1:3])
