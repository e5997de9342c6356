"""A batch on several devices: the same fit as on one, up to rounding; options by platform."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

from fle.fitting import optimiser

# A large batch of a tiny model; what was trained on how many devices.
CODE = """
import json
import jax
import numpy as np
import fle
from fle.fitting import loop

generator = np.random.default_rng(0)
x = generator.standard_normal((2_000, 2)).astype(np.float32)
data = fle.Dataset(
    observations=x,
    actions=generator.integers(2, size=2_000),
    rewards=x[:, 0] + generator.standard_normal(2_000),
    terminations=np.ones(2_000, bool),
    number_of_actions=2,
)
devices = []
usual = loop.stage_training
def stage_training(batch_size):
    def train(*given):
        state, losses = usual(batch_size)(*given)
        devices.append(len(state.parameters.sharding.device_set))
        return state, losses
    return train
loop.stage_training = stage_training
result = fle.evaluate(
    data, [0.5, 0.5], horizon=1, model=fle.Gaussian(hidden=()), second_opinions=False,
    recipe=fle.Recipe(steps=60, batch_size=800, weight_decay=0.01),
)
at = result.returns
print(json.dumps([len(jax.devices()), devices, float(at.mean()), float(at.std())]))
"""


def trained(devices):
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={devices}"
    source = str(Path(optimiser.__file__).parents[2])
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": source}
    answer = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", CODE],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        env=environment,
    )
    return json.loads(answer.stdout.splitlines()[-1])


def test_a_batch_is_shared_among_devices():
    (one, alone, *expected), (four, together, *found) = trained(1), trained(4)
    assert (one, four) == (1, 4)
    assert set(alone) == {1}
    assert set(together) == {4}
    # Sums in another order: float32 has 6e-8, and 60 steps of Adam may add up a thousand of them.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_options_of_processors_are_for_processors_alone(monkeypatch):
    assert optimiser.compiler_options(shared=False)["xla_cpu_multi_thread_eigen"] is False
    assert "xla_disable_hlo_passes" not in optimiser.compiler_options(shared=True)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert optimiser.compiler_options(shared=False) == {}
