"""Jobs on clusters: tasks of Ray that say what they need, and arrays of SLURM."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from fle.errors import FLEError, SettingsError, install
from fle.executors.jobs_file import MOST_LOSSES, ONE_THREAD, JobsFile, Order, Outcome, reason, work
from fle.files import make_directory, write_atomically

# What SLURM takes by default (MaxArraySize); of more jobs, each task does several.
MOST_TASKS = 1_000


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
                f"Ray: expected cpus and gpus of at least 0, got {self.cpus} and {self.gpus}."
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


class JobsWaitingError(FLEError):
    """Jobs were written for SLURM, and there is no result before they have run."""


@final
@dataclass(frozen=True)
class Slurm:
    """Writes an sbatch script instead of running anything; repeat the call when it has run.

    With intervals that is to be done three times: for the fits, those to resampled episodes, and
    the rest.

    script: where. folder: on a file system that all nodes see.

    Jobs that are finished are not in the script, so a call after a lost node writes what is left.

    Example: `fle.executors.Slurm("jobs.sbatch", folder="/shared/jobs")`.
    """

    script: str | os.PathLike[str]
    folder: str | os.PathLike[str] | None = None

    @property
    def shared(self) -> bool:
        """Yes: nodes are other machines."""
        return True

    def run(self, jobs: JobsFile) -> Iterator[Outcome]:
        """Write the script, and say that it is to be submitted."""
        ready = [jobs.job(number) for number in Order(jobs).ready()]
        script = Path(self.script)
        make_directory(script.parent)
        text = script_text(JobsFile.write(jobs.path.parent, ready, jobs.memory))
        write_atomically(script, text.encode())
        later = len(jobs.jobs) - len(ready)
        more = f", and {later:,} that need them come later" if later else ""
        raise JobsWaitingError(
            f"{len(ready):,} jobs are in {script}{more}; submit it with `sbatch --wait {script}`, "
            "then repeat this call."
        )


def script_text(jobs: JobsFile) -> str:
    """The script: a task a job, or every so many-th of very many."""
    number = len(jobs.jobs)
    tasks, folder = min(number, MOST_TASKS), jobs.path.parent.resolve()
    command = shlex.join([sys.executable, "-m", "fle", "job", str(jobs.path.resolve())])
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=fle",
        f"#SBATCH --array=0-{tasks - 1}",
        "#SBATCH --cpus-per-task=1",
        # A job that is begun again goes on from its last checkpoint.
        "#SBATCH --requeue",
        f'#SBATCH --output="{str(folder).replace("%", "%%")}/slurm-%A_%a.out"',
        *(f"export {name}={value}" for name, value in ONE_THREAD.items()),
        *([_path_line()] if os.environ.get("PYTHONPATH") else []),
        f'{command} $(seq "$SLURM_ARRAY_TASK_ID" {tasks} {number - 1})',
    ]
    return "\n".join(lines) + "\n"


def _path_line() -> str:
    return f"export PYTHONPATH={shlex.quote(os.environ['PYTHONPATH'])}"
