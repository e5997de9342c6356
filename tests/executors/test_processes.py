"""Processes on the cores of one machine: lost ones, and Ctrl-C, with workers that do no more."""

import os
import time
from pathlib import Path

import pytest

from fle import executors
from fle.executors import Job, JobsFile, Processes

# A worker that answers at once; kills itself once at job 0, always at job 1; fails at job 2; and
# at job 4 waits to be interrupted.
WORKER = """
import json, os, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
folder = pathlib.Path(sys.argv[1]).parent
for line in sys.stdin:
    number = int(line)
    mark = folder / f"begun-{number}"
    before = mark.exists()
    mark.write_text(" ".join(map(str, sorted(os.sched_getaffinity(0)))))
    if number == 1 or (number == 0 and not before):
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while number == 4:
            time.sleep(0.01)
    except KeyboardInterrupt:
        (folder / "kept").touch()
        sys.exit(130)
    print(json.dumps({"error": "no"} if number == 2 else {"path": str(number)}), flush=True)
"""
pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are of Linux")


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "SERVE", WORKER)

    def written(*numbers):
        needs = {3: ("k2",)}
        return JobsFile.write(
            tmp_path,
            [Job(f"k{n}", f"job {n}", "fit", "p", needs=needs.get(n, ())) for n in range(5)][
                slice(*numbers)
            ],
        )

    return written


def test_a_lost_process_is_replaced_and_its_job_begun_again(jobs):
    found = {o.number: o for o in Processes(2).run(jobs(4))}
    assert found[0].path == "0"
    assert found[1].path is None
    assert found[1].error == "its process ended by signal 9, each time"
    assert found[2].error == "no"
    assert found[3].error == "needs job 2, which failed"


def test_a_process_has_one_core(jobs, tmp_path):
    list(Processes(1).run(jobs(1)))
    assert len((tmp_path / "begun-0").read_text().split()) == 1


def test_ctrl_c_lets_jobs_keep_what_they_have(jobs, tmp_path):
    running = Processes(3).run(jobs(5))
    # All others end; the last one waits.
    ended = [next(running) for _ in range(4)]
    assert {outcome.number for outcome in ended} == {0, 1, 2, 3}
    while not (tmp_path / "begun-4").exists():
        time.sleep(0.01)
    with pytest.raises(KeyboardInterrupt):
        running.throw(KeyboardInterrupt)
    assert Path(tmp_path / "kept").exists()
