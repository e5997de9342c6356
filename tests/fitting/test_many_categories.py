"""Many states or actions: looked up by their code, which is the same and takes little memory."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fle
from fle.fitting.encoding import MOST_ONE_HOT
from fle.models.network import Network

# A one-hot vector of 100,000 states for 20,000 rows would be 8 GB.
PROBLEM = """
import json, pathlib, sys, warnings
import numpy as np
import fle
warnings.simplefilter("ignore")
generator = np.random.default_rng(0)
states, choices, rows = (int(value) for value in sys.argv[1:])
actions = generator.integers(choices, size=rows)
data = fle.Dataset(
    observations=generator.integers(states, size=rows),
    actions=actions,
    rewards=actions / choices + generator.normal(0, 0.1, rows),
    terminations=np.ones(rows, bool),
    number_of_actions=choices,
)
recipe = fle.Recipe(steps=30, batch_size=100, weight_decay=0.03)
planned = fle.plan(
    data, np.full(choices, 1 / choices), horizon=1, recipe=recipe, second_opinions=False
)
mean = planned.carry_out(anyway=True).returns.mean()
# Not ru_maxrss: a process that was started by a large one begins with that one's peak.
status = pathlib.Path("/proc/self/status").read_text()
peak = 1024 * int(status.split("VmHWM:")[1].split()[0])
print(json.dumps({"mean": float(mean), "peak": peak, "estimate": planned.cost.memory}))
"""


@pytest.mark.parametrize(("column", "hidden"), [(0, (8, 8)), (2, (8,))])
def test_a_code_gives_what_its_one_hot_vector_gives(column, hidden):
    number, trends = 5, 2
    one_hot = Network(2 + number, hidden, np.zeros(4), np.random.default_rng(0), trends=trends)
    coded = Network(
        3, hidden, np.zeros(4), np.random.default_rng(0), trends=trends, codes=[(column, number)]
    )
    vectors = np.random.default_rng(1).standard_normal((20, 2)).astype(np.float32)
    codes = np.random.default_rng(2).integers(number, size=20)
    columns = np.insert(vectors, column, codes, axis=1)
    expanded = np.concatenate([vectors[:, :column], np.eye(number)[codes], vectors[:, column:]], 1)
    expected = jax.vmap(one_hot)(jnp.asarray(expanded, jnp.float32))
    assert np.std(np.asarray(expected)) > 0
    np.testing.assert_allclose(jax.vmap(coded)(jnp.asarray(columns)), expected, atol=1e-6)
    np.testing.assert_allclose(coded.columns(jnp.asarray(columns)).T, expected, atol=1e-6)


def test_few_categories_stay_one_hot_vectors_and_many_become_codes():
    def sizes(states):
        data = fle.Dataset(
            observations=np.arange(2 * states) % states,
            actions=np.arange(2 * states) // states,
            rewards=np.arange(2 * states) % 7,
            terminations=np.ones(2 * states, bool),
        )
        return fle.plan(data, [0.5, 0.5], horizon=1).encoder.sizes

    few, many = sizes(MOST_ONE_HOT), sizes(MOST_ONE_HOT + 1)
    assert (few.codes, few.inputs) == ((), MOST_ONE_HOT + 2)
    assert (many.codes, many.inputs) == (((0, MOST_ONE_HOT + 1),), 3)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured as Linux counts it")
@pytest.mark.parametrize(
    ("states", "actions", "rows"),
    [(100_000, 2, 20_000), (2, 500, 3_000)],
    ids=["states", "actions"],
)
def test_many_categories_take_little_memory(states, actions, rows):
    arguments = [str(value) for value in (states, actions, rows)]
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROBLEM, *arguments], capture_output=True, text=True, check=True
    )
    found = json.loads(answer.stdout)
    assert found["peak"] < 2**30
    assert 0.5 * found["peak"] < found["estimate"] < 2.0 * found["peak"]
    # All actions alike: (A - 1) / 2A. A third of the spread of actions is what would be seen if
    # they were not told apart.
    assert found["mean"] == pytest.approx((actions - 1) / (2 * actions), abs=0.1)
