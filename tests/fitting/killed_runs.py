"""Runs that are killed, in processes that cost little.

Started as a script, this imports fle once and then forks one child for every line on its standard
input, before JAX has started any thread. What children compile is kept in a cache on the disk, so
only the first of each problem compiles. A line is JSON: the problem, the directory it writes, and
when to kill: after so many seconds, or at the so-manyeth point inside the writing of a file. The
answer is whether the run came to its end, and how many seconds of the processor it took.
"""

import builtins
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Half-way through the bytes, before they are flushed, before the rename, and just after it.
POINTS_A_FILE = 4


class RunServer:
    """Starts runs and kills them, as told."""

    def __init__(self, cache):
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, __file__, str(cache)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, problem, out, *, seconds=None, point=None):
        """Whether the run reached its end, and its seconds of the processor."""
        order = {"problem": problem, "out": str(out), "seconds": seconds, "point": point}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return answer["finished"], answer["seconds"]

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()


FIT = [
    *("--horizon", "3", "--seed", "5", "--model", "gaussian", "--hyperparameter", "hidden=[]"),
    *("--recipe", "steps=20", "--recipe", "batch_size=50", "--recipe", "weight_decay=0.03"),
    "--json",
]
# Other estimators are asked by `evaluate`; they are the same after any run.
ALONE = "--no-second-opinions"


def evaluate(out):
    """Only the model is carried from stage to stage; the weight decay is chosen beforehand."""
    command("evaluate", str(Path(out).with_name("log.parquet")), "--policy", "behaviour", out=out)


def compare(out):
    """A run for each policy, the data once, and a page."""
    policies = ["--policy", "behaviour", "--policy", "columns", ALONE]
    command("compare", str(Path(out).with_name("log.parquet")), *policies, out=out)


def prepare(out):
    """Shards become files of columns, part by part; a folder that is not finished begins anew."""
    command("prepare", str(Path(out).with_name("shards")), out)


def report(out):
    """The page of a finished run, drawn over the old one."""
    command("report", out)


def command(name, *words, out=None):
    from fle.cli import evaluate_command, main
    from fle.report import page

    # Vega takes seconds to put together, and is the same each time. Other commands write
    # tables alone: what they would draw is drawn again by repeating them, as reports are.
    page._bundle = lambda: "// Vega"
    if name not in ("report", "prepare"):
        evaluate_command.DRAWING = ("no such package",)
    fit = [] if out is None else [*FIT, "--out", out]
    if main([name, *words, *fit]) != 0:
        raise SystemExit("the command failed")


def replicates(out):
    """One decay of the learning rate, and one optimiser, over all stages; then two replicates."""
    from quick_fits import cycle

    import fle

    fle.evaluate(
        cycle(400),
        [1.0],
        gamma=0.8,
        stages=4,
        model=fle.Gaussian(hidden=()),
        interval=fle.Interval(0.9, replicates=2),
        recipe=fle.Recipe(
            steps=20, batch_size=50, weight_decay=0.03, schedule="fit", frame_tolerance=0.1
        ),
        second_opinions=False,
        out=out,
        seed=5,
    )


PROBLEMS = {
    problem.__name__: problem for problem in (evaluate, replicates, compare, prepare, report)
}


def kill_at_point(point):
    """Kill this process at one of the points in the writing of files, counted from 0."""
    from fle import files

    count = 0
    open_file, replace = builtins.open, os.replace

    def reached():
        nonlocal count
        count += 1
        return count > point

    def stop():
        os.kill(os.getpid(), signal.SIGKILL)

    class HalfWritten(io.BufferedWriter):
        def write(self, content):
            if reached():
                super().write(bytes(content)[: len(bytes(content)) // 2])
                self.flush()
                stop()
            return super().write(content)

    def counted_open(path, mode, **options):
        if mode == "wb":
            return HalfWritten(io.FileIO(path, mode, opener=options.get("opener")))
        return open_file(path, mode, **options)

    def counted(function):
        def call(*arguments):
            if reached():
                stop()
            return function(*arguments)

        return call

    files.open = counted_open
    # Only a loss of power would need what a disk takes its time for.
    os.fsync, os.replace = counted(lambda descriptor: None), counted(replace)


def serve(cache):
    # All that a child will need, imported once.
    import altair  # noqa: F401
    import jax
    import jinja2  # noqa: F401
    import pyarrow.parquet  # noqa: F401
    import scipy.spatial
    import scipy.stats  # noqa: F401

    import fle.baselines
    import fle.cli.compare_command
    import fle.cli.entry
    import fle.cli.small_commands
    import fle.data.readers.preparing
    import fle.models.families.gaussian
    import fle.report  # noqa: F401
    from fle.fitting import checkpoints

    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    checkpoints.SECONDS_BETWEEN = 0.0
    spent = used()
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                if order["point"] is not None:
                    kill_at_point(order["point"])
                # What a command prints is not an answer.
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                PROBLEMS[order["problem"]](order["out"])
                status = 0
            finally:
                os._exit(status)
        status = wait(child, order["seconds"])
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            raise SystemExit(f"a run failed: {order}")
        spent, before = used(), spent
        answer = {"finished": os.WIFEXITED(status), "seconds": spent - before}
        print(json.dumps(answer), flush=True)


def used():
    """Seconds of the processor, of all children that ended."""
    times = os.times()
    return times.children_user + times.children_system


def processor_seconds(child, began):
    """Of a child that runs; of the clock since it began where the system does not say."""
    try:
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return time.monotonic() - began
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait(child, seconds):
    """The status of the child, which is killed after so many seconds of the processor.

    How far a run has come by a time of day depends on what else the machine does.
    """
    if seconds is None:
        return os.waitpid(child, 0)[1]
    began = time.monotonic()
    while processor_seconds(child, began) < seconds:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return status
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    serve(sys.argv[1])
