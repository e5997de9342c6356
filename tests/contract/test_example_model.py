"""A model of one's own works as the documentation says."""

from example_model import load_example

import fle


def test_the_example_finds_the_distribution_of_its_problem():
    example = load_example()
    result = fle.evaluate(
        example.logged_data(10_000, seed=0),
        example.target_policy,
        horizon=example.HORIZON,
        model=example.Laplace(),
        recipe=fle.Recipe(steps=500),
    )
    location, scale = example.true_distribution()
    # A tenth of the standard deviation: the last stage alone, whose noise is all there is, is known
    # from some hundred rows near the final state to 1 / sqrt(100).
    assert abs(result.returns.mean() - location) < 0.1 * 2**0.5 * scale
    assert abs(result.returns.std() / (2**0.5 * scale) - 1) < 0.1
