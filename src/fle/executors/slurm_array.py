"""Jobs as an array of SLURM: a script to submit, and a command that carries out one of them."""

import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import final

from fle.errors import FLEError
from fle.executors.jobs_file import ONE_THREAD, JobsFile, Order, Outcome
from fle.files import make_directory, write_atomically

# What SLURM takes by default (MaxArraySize); of more jobs, each task does several.
MOST_TASKS = 1_000


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
