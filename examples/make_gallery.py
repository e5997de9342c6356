"""The pictures of docs/gallery.md: charts of the two bundled logs, each from one line of Python.

python examples/make_gallery.py docs/gallery
"""

import sys
import warnings
from pathlib import Path

import fle
import fle.examples


def evaluated(name):
    """A first look at an example, for the pictures, and its data."""
    example = fle.examples.load(name)
    data = fle.read(example.data_path)
    problem = {"gamma": example.gamma, "horizon": example.horizon}
    policy = fle.load_policy(example.policy_path)
    return fle.evaluate(data, policy, quick=True, **problem), data, policy, problem


def main(folder):
    """Draw all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", fle.FLEWarning)
    result, data, policy, problem = evaluated("cartpole")
    for kind in ("density", "cdf", "quantile", "stages"):
        result.plot(kind).save(folder / f"{kind}.png", scale_factor=1.5)
    laws = result.at(data.observations[0], [0, 1])
    laws[0].plot().save(folder / "one-action.png", scale_factor=1.5)
    logged = fle.load_policy("behaviour")
    policies = {"new": policy, "logged": logged}
    compared = fle.compare(data, policies, quick=True, **problem)
    compared.plot().save(folder / "comparison.png", scale_factor=1.5)
    result, *_ = evaluated("reservoir")
    result.plot("joint").save(folder / "joint.png", scale_factor=1.5)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/gallery"))
