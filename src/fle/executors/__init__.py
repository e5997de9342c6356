"""Who carries out jobs: this machine's cores, a Ray cluster, or an array of SLURM."""

from fle.executors.jobs_file import Executor, Job, JobsFile, Outcome
from fle.executors.processes import Processes
from fle.executors.ray_cluster import Ray
from fle.executors.slurm_array import JobsWaitingError, Slurm

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
