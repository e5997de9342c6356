"""A model of one's own works as the documentation says."""

import re
from pathlib import Path

from example_model import PATH, load_example

import fle

GUIDE = Path(__file__).parents[2] / "docs" / "adding_a_model.md"


def test_the_guide_shows_the_example_as_it_is():
    (shown,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert shown.strip() in PATH.read_text()


def test_the_example_finds_the_law_of_its_problem():
    example = load_example()
    result = fle.evaluate(
        example.logged_data(10_000, seed=0),
        example.target_policy,
        horizon=example.HORIZON,
        model=example.Laplace(),
        training=fle.Training(steps=500),
    )
    location, scale = example.true_law()
    # A tenth of the standard deviation: the last stage alone, whose noise is all there is, is known
    # from some hundred rows near the final state to 1 / sqrt(100).
    assert abs(result.returns.mean() - location) < 0.1 * 2**0.5 * scale
    assert abs(result.returns.std() / (2**0.5 * scale) - 1) < 0.1
