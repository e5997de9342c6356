"""Jobs on the cores of this machine: a process a core, which stays on it."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from selectors import EVENT_READ, DefaultSelector
from typing import IO, final

from fle.errors import SettingsError
from fle.executors.jobs_file import MOST_LOSSES, ONE_THREAD, JobsFile, Order, Outcome

SERVE = "from fle.executors.jobs_file import main; main()"
# What a process that is interrupted may take to write where it stands.
SECONDS_TO_STOP = 30.0


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
