"""Who carries out jobs: this machine's cores, a Ray cluster, or an array of SLURM."""

from fle.executors.clusters import JobsWaitingError, Ray, Slurm
from fle.executors.jobs_file import Executor, Job, JobsFile, Outcome
from fle.executors.processes import Processes

__all__ = [
    "Executor",
    "Job",
    "JobsFile",
    "JobsWaitingError",
    "Outcome",
    "Processes",
    "Ray",
    "Slurm",
]
