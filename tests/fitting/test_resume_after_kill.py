"""What is killed at any moment goes on and gives the same result, to the last bit.

Twenty kills, of commands and calls that fit, make replicates, compare, prepare a log and write
reports: at random times over the life of a run, and at random points inside the writing of a file.
Each hits the directory that the one before left behind, until that run is finished. `killed_runs`
says how this is kept cheap.
"""

import json
import os
import shutil
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed_runs import POINTS_A_FILE, PROBLEMS, RunServer

import fle

ROWS = 400
# Of each problem.
KILLS = 4
# A run writes run.json, a checkpoint a stage, model, samples, result and manifest, and a file a
# replicate; the command line adds its options, a copy of the data, the setting of the report and
# the manifest once more; a comparison has two runs, and a file of its own. Preparing writes that it
# has begun, that it is done, and a manifest; columns are mapped, not written in one go.
FILES = {
    "evaluate": 3 + 5 + 4,
    "replicates": 4 + 5 + 3,
    "compare": 2 * (3 + 5 + 2) + 3,
    "prepare": 3,
    "report": 2,
}


def contents(out):
    """Everything a run, or several, left behind, without the time it took."""
    found = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        # The manifest has hashes of files that say the time; pages say it too.
        if path.is_dir() or path.name in (".lock", "manifest.json") or "checkpoints" in name:
            continue
        # Options name the directory itself.
        content = path.read_bytes().replace(str(out).encode(), b"")
        if path.suffix == ".html" and not (out / "drawn again").exists():
            content = b"" if b"</html>" in content else b"cut"
        found[name] = timeless(json.loads(content)) if path.suffix == ".json" else content
    return found


def timeless(value):
    if isinstance(value, dict):
        return {name: timeless(item) for name, item in value.items() if name != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def write_log(path):
    """A ring of ten states, as a table."""
    rows = np.arange(ROWS)
    columns = {"episode": rows // 10, "step": rows % 10, "action": rows // 10 % 2}
    columns |= {"observation.0": np.cos(rows % 10), "observation.1": np.sin(rows % 10)}
    columns |= {"reward": 1 + 0.1 * (-1.0) ** (rows // 10)}
    columns |= {"probability.0": np.full(ROWS, 0.4), "probability.1": np.full(ROWS, 0.6)}
    columns |= {"terminated": np.zeros(ROWS, bool), "truncated": rows % 10 == 9}
    table = pa.table(columns)
    pq.write_table(table, path)
    path.with_name("shards").mkdir()
    # Two episodes cross from one shard to the next.
    for place, (start, stop) in enumerate(pairwise((0, 95, 255, ROWS))):
        pq.write_table(
            table.slice(start, stop - start), path.with_name("shards") / f"{place}.parquet"
        )


def begin(problem, out, finished):
    """A report is of a run that is there; all others begin with nothing."""
    if problem == "report":
        shutil.copytree(finished, out)
        (out / "drawn again").touch()


class Victim:
    """A problem that is killed again and again."""

    def __init__(self, server, problem, folder, seed=0):
        self.server, self.problem, self.folder = server, problem, folder
        self.kills = self.runs = 0
        self._generator = np.random.default_rng([seed, list(PROBLEMS).index(problem)])
        self._finished = folder / "evaluate-undisturbed"
        first = folder / f"{problem}-undisturbed"
        # Once more when all is compiled, for the length of a life.
        for out in (first, folder / f"{problem}-again"):
            begin(problem, out, self._finished)
            ended, self.life = server.run(problem, out)
            assert ended
            assert contents(out) == contents(first)
        self._undisturbed = contents(first)

    def kill(self, most):
        """One directory, killed at most so many times until it is finished."""
        out = self.folder / f"{self.problem}-killed"
        begin(self.problem, out, self._finished)
        self.runs += 1
        ended = False
        while not ended:
            moment = {}
            # A moment that comes too late kills nothing: the next directory then.
            if most > 0 and self.kills % 2:
                moment = {"seconds": self._generator.uniform(0.2, 1) * self.life}
            elif most > 0:
                points = FILES[self.problem] * POINTS_A_FILE
                moment = {"point": int(self._generator.integers(points))}
            ended, _ = self.server.run(self.problem, out, **moment)
            self.kills += not ended
            most -= not ended
            # Killed after its last byte: a finished log is not prepared again, it is refused.
            ended |= self.problem == "prepare" and (out / "manifest.json").exists()
        assert contents(out) == self._undisturbed
        check_runs(out)
        shutil.rmtree(out)


def check_runs(out):
    """Each opens, and keeps two checkpoints; no half-written file stays."""
    for run in {path.parent for path in out.rglob("run.json")}:
        fle.load(run)
        assert len(list((run / "checkpoints").glob("*.safetensors"))) == 2
    if (out / "prepared.json").exists():
        # The last row of an episode, which was cut off, has no next observation.
        with pytest.warns(fle.FLEWarning, match="truncated rows"):
            assert len(fle.open(out)) == ROWS - ROWS // 10
    assert not list(out.rglob("*.tmp"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_twenty_kills_change_nothing(tmp_path):
    write_log(tmp_path / "log.parquet")
    server = RunServer(tmp_path / "compiled")
    try:
        for problem in PROBLEMS:
            victim = Victim(server, problem, tmp_path)
            while victim.kills < KILLS:
                victim.kill(KILLS - victim.kills)
    finally:
        server.close()
