"""Jobs as a file that every machine can read, how one is carried out, and what an executor is."""

import hashlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, get_args

from fle.errors import FLEError
from fle.files import make_directory, plain_json, read_json, write_json

FORMAT = 1
# What keys, plans and arrays are called; files of these names are made of them.
HASH = re.compile("[0-9a-f]{16,64}")
# Replicates and stages are counted, and files are numbered by them.
MOST_COUNTED = 10**6
# How often a job is begun again after its process or its machine was lost.
MOST_LOSSES = 3
# Libraries that share a job among threads would change its last digits with their number.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Part = Literal["fit", "replicate", "evaluation"]


@dataclass(frozen=True)
class Job:
    """One piece of work, whose result is the run directory `key` beside the jobs file.

    key: a hash of all that decides the result. name: what a user calls it.
    part: "fit" trains all stages of a plan; "replicate" fits it to resampled episodes, from there
        on; "evaluation" does what is left, which is all of it where there are no intervals.
    plan: the hash of the plan. stages: how many a fit has. needs: keys of the jobs it goes on
        from.
    """

    key: str
    name: str
    part: Part
    plan: str
    replicate: int = 0
    stages: int = 0
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobsFile:
    """Jobs in the file that lists them; their numbers are their places, from 0.

    memory: bytes that a process may grow to which carries them out; None for all that there is.
    """

    path: Path
    jobs: tuple[Job, ...]
    memory: int | None = None

    @classmethod
    def write(cls, folder: Path, jobs: Sequence[Job], memory: int | None = None) -> "JobsFile":
        """A file in the folder, named after what it holds."""
        make_directory(folder)
        listed = [{**asdict(job), "needs": [*job.needs]} for job in jobs]
        plain = {"format": FORMAT, "memory": memory, "jobs": listed}
        name = hashlib.sha256(plain_json(plain).encode()).hexdigest()[:16]
        path = folder / f"jobs-{name}.json"
        write_json(path, plain)
        return cls(path, tuple(jobs), memory)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> "JobsFile":
        """The jobs of a file, or an FLEError that says what is wrong with it."""
        plain = read_json(Path(path))
        if plain.get("format") != FORMAT or not isinstance(plain.get("jobs"), list):
            raise FLEError(f"{path} is not a jobs file of this version; write it again.")
        memory = plain.get("memory")
        if memory is not None and (not isinstance(memory, int) or isinstance(memory, bool)):
            raise FLEError(f"{path} is damaged: memory: expected bytes, got {str(memory)[:40]!r}.")
        return cls(Path(path), tuple(_job(entry, str(path)) for entry in plain["jobs"]), memory)

    def job(self, number: int) -> Job:
        """The job of this number."""
        if not 0 <= number < len(self.jobs):
            raise FLEError(
                f"{self.path} has the jobs 0 to {len(self.jobs) - 1}; there is no job {number}."
            )
        return self.jobs[number]

    def directory(self, key: str) -> Path:
        """The run directory of a job."""
        return self.path.parent / key


class Outcome(NamedTuple):
    """A job that ended: its number, and its run directory, or why there is none."""

    number: int
    path: str | None
    error: str = ""


class Order:
    """Which jobs can begin: those whose needs in the same file are finished."""

    def __init__(self, jobs: JobsFile):
        self._jobs = jobs
        keys = {job.key for job in jobs.jobs}
        self._waiting = {n: {*job.needs} & keys for n, job in enumerate(jobs.jobs)}

    def ready(self) -> list[int]:
        """The numbers of the jobs that can begin now; each is told once."""
        found = [number for number, needs in self._waiting.items() if not needs]
        for number in found:
            del self._waiting[number]
        return found

    def ended(self, outcome: Outcome) -> list[Outcome]:
        """This one, and those that can never begin because it failed."""
        ended = self._jobs.job(outcome.number)
        following = [number for number, needs in self._waiting.items() if ended.key in needs]
        if outcome.path is not None:
            for number in following:
                self._waiting[number].discard(ended.key)
            return [outcome]
        outcomes = [outcome]
        for number in following:
            if self._waiting.pop(number, None) is not None:
                outcomes += self.ended(Outcome(number, None, f"needs {ended.name}, which failed"))
        return outcomes


class Executor(Protocol):
    """Carries out jobs somewhere.

    folder: where jobs and what they need are kept, seen by all that work on them; None leaves it
        to the call, which takes one inside of `out`, or one that is gone afterwards.
    """

    @property
    def folder(self) -> str | os.PathLike[str] | None:
        """Where jobs are kept."""

    @property
    def shared(self) -> bool:
        """Whether other machines must see the folder, so that a passing one does not do."""

    def run(self, jobs: JobsFile) -> Iterator[Outcome]:
        """All jobs of the file, in any `Order`, each as it ends; where one fails, others go on."""


def _job(entry: Any, source: str) -> Job:
    texts, counts = ("key", "name", "part", "plan"), ("replicate", "stages")
    kinds = {**dict.fromkeys(texts, str), **dict.fromkeys(counts, int), "needs": list}
    right = isinstance(entry, dict) and set(entry) == set(kinds)
    right = right and all(isinstance(entry[name], kind) for name, kind in kinds.items())
    if right:
        hashes = [entry["key"], entry["plan"], *entry["needs"]]
        right = all(isinstance(one, str) and HASH.fullmatch(one) for one in hashes)
        right = right and entry["part"] in get_args(Part)
        right = right and all(0 <= entry[name] <= MOST_COUNTED for name in counts)
        # A replicate goes on from the fit.
        right = right and (entry["part"] != "replicate" or len(entry["needs"]) == 1)
    if not right:
        raise FLEError(f"{source} is damaged: {str(entry)[:80]} is not a job. Write it again.")
    return Job(**{**entry, "needs": tuple(entry["needs"])})


def work(path: str, number: int) -> str:
    """Carry out one job of a file; its run directory."""
    from fle.fitting.jobs import run_job

    return str(run_job(Path(path), number))


def serve(path: str) -> None:
    """Carry out the jobs whose numbers come line by line, until no more come.

    What jobs print goes to the error stream: the answers have the other one for themselves.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    for line in sys.stdin:
        answer: dict[str, str]
        try:
            answer = {"path": work(path, int(line))}
        except Exception as error:
            answer = {"error": reason(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def reason(error: BaseException) -> str:
    """Why a job failed, in one line."""
    text = " ".join(str(error).split())
    kind = type(error).__name__
    return (
        text
        if kind.endswith("Error") and type(error).__module__ == "fle.errors"
        else (f"{kind}: {text}")
    )


def main() -> None:
    """Serve the file that is named until nobody asks, or the user stops it."""
    # A shell that starts its children in the background has them ignore it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        serve(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
