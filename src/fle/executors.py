"""Who carries out jobs, which are a file: this machine's cores, a Ray cluster, or SLURM."""

import hashlib
import json
import logging
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any, Literal, NamedTuple, Protocol, final, get_args

from fle.errors import FLEError, SettingsError, install
from fle.files import make_directory, plain_json, read_json, write_atomically, write_json

FORMAT = 1
# What keys, plans and arrays are called; files of these names are made of them.
HASH = re.compile("[0-9a-f]{16,64}")
# Replicates and stages are counted, and files are numbered by them.
MOST_COUNTED = 10**6
# How often a job is begun again after its process or its machine was lost.
MOST_LOSSES = 3
# Libraries that share a job among threads would change its last digits with their number.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SERVE = "from fle.executors import main; main()"
# What a process that is interrupted may take to write where it stands.
SECONDS_TO_STOP = 30.0
# What SLURM takes by default (MaxArraySize); of more jobs, each task does several.
MOST_TASKS = 1_000
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


@final
@dataclass(frozen=True)
class Processes:
    """As many jobs at a time as said, each in a process of its own that is pinned to one core.

    A process that is lost, killed for its memory, say, is replaced, and its job begun again: it
    goes on from its last checkpoint.

    Example: `fle.compare(data, policies, gamma=0.99, executor=fle.executors.Processes(8))`.
    """

    number: int
    folder: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.number, bool) or not isinstance(self.number, int) or self.number < 1:
            raise SettingsError(
                f"Processes: expected a whole number of at least 1, got {self.number!r}."
            )

    @property
    def shared(self) -> bool:
        """No: all is on this machine."""
        return False

    def run(self, jobs: JobsFile) -> Iterator[Outcome]:
        """All jobs of the file, each as it ends."""
        order, cores = Order(jobs), _cores()
        waiting, losses = deque(order.ready()), Counter[int]()
        number = min(self.number, len(jobs.jobs))
        idle = [_Worker(jobs, cores[place % len(cores)]) for place in range(number)]
        busy: list[_Worker] = []
        try:
            while waiting or busy:
                while waiting and idle:
                    busy.append(idle.pop())
                    busy[-1].begin(waiting.popleft())
                for worker in _answering(busy):
                    busy.remove(worker)
                    outcome = worker.outcome()
                    if outcome is None:
                        job, how = worker.job, worker.ended()
                        idle.append(_Worker(jobs, worker.core))
                        losses[job] += 1
                        if losses[job] < MOST_LOSSES:
                            waiting.append(job)
                            continue
                        outcome = Outcome(job, None, f"its process ended {how}, each time")
                    else:
                        idle.append(worker)
                    yield from order.ended(outcome)
                    waiting += order.ready()
        finally:
            _stop(busy, idle)


class _Worker:
    """A process that carries out one job at a time."""

    def __init__(self, jobs: JobsFile, core: int | None):
        self.core = core
        self.job = -1
        # In a session of its own: who presses Ctrl-C stops the caller, which stops these in turn.
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", "-c", SERVE, str(jobs.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD},
            start_new_session=True,
        )
        assert self.process.stdin is not None  # noqa: S101
        assert self.process.stdout is not None  # noqa: S101
        self.questions: IO[bytes] = self.process.stdin
        self.answers: IO[bytes] = self.process.stdout
        if core is not None and sys.platform == "linux":
            # Before JAX counts the cores that it has.
            with suppress(OSError):
                os.sched_setaffinity(self.process.pid, {core})

    def begin(self, number: int) -> None:
        """Begin a job; should the process be gone, its answer says so."""
        self.job = number
        with suppress(OSError):
            self.questions.write(f"{number}\n".encode())
            self.questions.flush()

    def outcome(self) -> Outcome | None:
        """What it answers; None if the process was lost."""
        line = self.answers.readline()
        if not line.endswith(b"\n"):
            return None
        answer = json.loads(line)
        return Outcome(self.job, answer.get("path"), answer.get("error", ""))

    def close(self) -> None:
        """Ask and hear no more; where nothing is asked any more, the process ends."""
        for stream in (self.questions, self.answers):
            with suppress(OSError):
                stream.close()

    def ended(self) -> str:
        """How a lost process ended."""
        code = self.process.wait()
        self.close()
        return f"by signal {-code}" if code < 0 else f"with code {code}"


def _answering(busy: Sequence[_Worker]) -> list[_Worker]:
    """Those that have something to say, or are gone, once there are any."""
    with DefaultSelector() as answers:
        for worker in busy:
            answers.register(worker.answers, EVENT_READ, worker)
        return [key.data for key, _ in answers.select()]


def _cores() -> list[int | None]:
    """Those that this process may use; None where the system does not say."""
    return [*sorted(os.sched_getaffinity(0))] if sys.platform == "linux" else [None]


def _stop(busy: list[_Worker], idle: list[_Worker]) -> None:
    """End the processes; what they are at they write to their checkpoints first."""
    for worker in busy:
        with suppress(OSError):
            worker.process.send_signal(signal.SIGINT)
    for worker in (*busy, *idle):
        worker.close()
    for worker in (*busy, *idle):
        try:
            worker.process.wait(SECONDS_TO_STOP)
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


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
