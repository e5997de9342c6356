"""Where a job is carried out: a process that is told numbers, and answers with directories."""

import json
import os
import signal
import sys
from pathlib import Path


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
