"""A Ray cluster on this machine, one of whose nodes is killed; see `benchmarks/cluster.py`."""

import os

import pytest
from small_jobs import plan, same

import fle
from fle.executors import Ray
from fle.fitting import Silent

# Nothing is reported to anybody; and the store of objects is hardly used.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray", reason="ray is not installed")
STORE = 80 * 2**20

pytestmark = [
    # Of Ray's own code.
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "include_dashboard": False, "object_store_memory": STORE}
    made = Cluster(initialize_head=True, head_node_args=head)
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


class Killing(Silent):
    """Kills a node when the first job has ended."""

    def __init__(self, cluster, node):
        self._cluster, self._node = cluster, node

    def advance(self, stage, loss):
        if stage == 1:
            self._cluster.remove_node(self._node, allow_graceful=False)


def test_a_lost_node_changes_nothing(cluster, tmp_path):
    lost, _ = (cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2))
    plans = {seed: plan(seed=seed, second_opinions=False) for seed in range(4)}
    # A job that fails is not taken for a lost one.
    found = fle.carry_out(
        plans,
        executor=Ray(cluster.address, folder=tmp_path),
        progress=Killing(cluster, lost),
    )
    expected = fle.carry_out(plans)
    assert all(same(found[seed], expected[seed]) for seed in plans)
