"""Jobs on a Ray cluster: tasks that say how many cores and devices they need."""

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from fle.errors import SettingsError, install
from fle.executors.jobs_file import MOST_LOSSES, JobsFile, Order, Outcome, reason, work


@final
@dataclass(frozen=True)
class Ray:
    """Jobs as tasks of a Ray cluster, which runs them again where a node is lost.

    address: "auto" for the cluster that this machine belongs to, "ray://host:10001" for another.
    folder: on a file system that all nodes see. cpus, gpus: what a job asks of a node.

    Example: `fle.executors.Ray("auto", folder="/shared/jobs", gpus=0.5)`.
    """

    address: str = "auto"
    folder: str | os.PathLike[str] | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        if self.address != "auto" and "://" not in self.address and ":" not in self.address:
            raise SettingsError(
                'Ray: expected the address "auto", "ray://host:port" or "host:port", got '
                f"{self.address!r}."
            )
        if not (self.cpus >= 0 and self.gpus >= 0):
            raise SettingsError(
                f"Ray: cpus and gpus must be at least 0, got {self.cpus} and {self.gpus}."
            )

    @property
    def shared(self) -> bool:
        """Yes: nodes are other machines."""
        return True

    def run(self, jobs: JobsFile) -> Iterator[Outcome]:
        """All jobs of the file, each as it ends."""
        ray = self._connected()
        # A lost node is Ray's to notice; a job that fails would fail again.
        task = ray.remote(work).options(
            num_cpus=self.cpus,
            num_gpus=self.gpus,
            max_retries=MOST_LOSSES - 1,
            retry_exceptions=False,
        )
        path, order = str(jobs.path.resolve()), Order(jobs)
        waiting = {task.remote(path, number): number for number in order.ready()}
        try:
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                number = waiting.pop(done)
                try:
                    outcome = Outcome(number, ray.get(done))
                except ray.exceptions.RayTaskError as error:
                    outcome = Outcome(number, None, reason(error.cause or error))
                except ray.exceptions.RayError as error:
                    lost = f"its node was lost, each time ({reason(error)})"
                    outcome = Outcome(number, None, lost)
                yield from order.ended(outcome)
                waiting |= {task.remote(path, number): number for number in order.ready()}
        finally:
            for left in waiting:
                with suppress(Exception):
                    ray.cancel(left)

    def _connected(self) -> Any:
        """Ray, connected to the cluster; a connection that there is already is used."""
        # Nothing is reported to anybody.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError as error:
            raise SettingsError(f"A Ray cluster needs ray: {install('cluster')}") from error
        if not ray.is_initialized():
            try:
                ray.init(address=self.address, log_to_driver=False, logging_level=logging.ERROR)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise SettingsError(
                    f"No Ray cluster answers at {self.address!r}: {reason(error)}. Start one with "
                    "`ray start --head`, or give its address."
                ) from error
        return ray
