"""The script that made the bundled examples still makes them."""

import importlib.util
from itertools import takewhile
from pathlib import Path

import numpy as np
import pytest

from fle import examples

SCRIPT = Path(__file__).parents[2] / "examples" / "make_bundled_data.py"
EPISODES = 5


@pytest.fixture(scope="module")
def script():
    pytest.importorskip("mo_gymnasium", exc_type=ImportError)
    specification = importlib.util.spec_from_file_location("make_bundled_data", SCRIPT)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_policies_are_those_of_the_script(script):
    for name in examples.NAMES:
        recipe, example = script.RECIPES[name](), examples.load(name)
        assert example.policy_path.read_bytes() == recipe.target.SerializeToString()
        assert example.behaviour_path.read_bytes() == recipe.behaviour.SerializeToString()


# The environments warn of their own spaces.
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", examples.NAMES)
def test_the_first_episodes_come_out_again(script, name):
    import pyarrow.parquet

    recipe, example = script.RECIPES[name](), examples.load(name)
    act = script.acting(example.behaviour_path)
    rows = script.play(recipe.make(), act, recipe.episodes, script.SEED)
    again = script.table(recipe, list(takewhile(lambda row: row["episode"] < EPISODES, rows)))
    logged = pyarrow.parquet.read_table(example.data_path).slice(0, again.num_rows)
    assert again.num_rows > 10 * EPISODES
    for column in again.column_names:
        np.testing.assert_allclose(
            again[column].to_numpy().astype(float),
            logged[column].to_numpy().astype(float),
            rtol=1e-5,
            atol=1e-5,
        )


def test_the_truth_is_drawn_from_the_policy_file(script):
    """The player draws as often as the file says: 4 standard deviations of 40,000 draws."""
    act = script.acting(examples.load("cartpole").policy_path)
    observation = np.array([[0.0, 0.5, 0.1, -0.5]], np.float32)
    # soft_push(k): a logistic law in k (0.02 x + 0.05 v + angle + 0.5 spin)
    score = 2.5 * (0.05 * 0.5 + 0.1 - 0.5 * 0.5)
    right = 1 / (1 + np.exp(-score))
    drawn = act(np.repeat(observation, 40_000, axis=0), np.random.default_rng(0))
    assert abs(drawn.mean() - right) < 4 * np.sqrt(right * (1 - right) / 40_000)
