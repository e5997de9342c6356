"""A run that is killed at any moment goes on and gives the same result, to the last bit.

Twenty kills, ten of a command and ten of a call: at random times over the life of a run, and at
random points inside the writing of a file. Each hits the run directory that the one before left
behind, until that run is finished. `killed_runs` says how this is kept cheap.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from killed_runs import POINTS_A_FILE, RunServer

KILLS = 10
PROBLEMS = ("finite", "discounted")
# A run writes run.json, a checkpoint a stage, model, samples, result and manifest; the command
# line adds its options, a copy of the data, the setting of the report and the manifest once more.
FILES = {"finite": 4 + 5 + 4, "discounted": 6 + 5}


def contents(out):
    """Everything a run leaves, without the time it took."""
    result = json.loads((out / "result.json").read_text())
    for record in result["records"]:
        assert record.pop("seconds") > 0
    names = ["run.json", "model.safetensors", "samples.parquet"]
    if (out / "run.toml").exists():
        names += ["run.toml", "context.json", "data.arrow"]
    # Options name the directory itself.
    own = str(out).encode()
    return [result, *((out / name).read_bytes().replace(own, b"") for name in names)]


def write_log(path):
    """A ring of ten states, as a table."""
    rows = np.arange(400)
    columns = {"episode": rows // 10, "step": rows % 10, "action": np.zeros(400, int)}
    columns |= {"observation.0": np.cos(rows % 10), "observation.1": np.sin(rows % 10)}
    columns |= {"reward": 1 + 0.1 * (-1.0) ** (rows // 10)}
    columns |= {"terminated": np.zeros(400, bool), "truncated": rows % 10 == 9}
    pq.write_table(pa.table(columns), path)


def kill_and_compare(problem, folder, most=KILLS):
    """How many kills happened; every run that was killed ended like an undisturbed one."""
    folder.mkdir()
    write_log(folder / "log.parquet")
    server = RunServer(folder / "compiled")
    try:
        assert server.run(problem, folder / "undisturbed")[0]
        undisturbed = contents(folder / "undisturbed")
        # Once more, now that all is compiled, for the length of a life.
        finished, life = server.run(problem, folder / "again")
        assert finished
        assert contents(folder / "again") == undisturbed
        generator = np.random.default_rng(PROBLEMS.index(problem))
        kills = runs = 0
        while kills < most:
            out = folder / f"killed-{runs}"
            runs += 1
            finished = False
            while not finished:
                moment = {}
                # A moment that comes too late kills nothing: the next run directory then.
                if kills < most and kills % 2:
                    moment = {"seconds": generator.uniform(0.2, 1) * life}
                elif kills < most:
                    moment = {"point": int(generator.integers(FILES[problem] * POINTS_A_FILE))}
                finished, _ = server.run(problem, out, **moment)
                kills += not finished
            assert contents(out) == undisturbed
            assert len(list((out / "checkpoints").iterdir())) == 2
    finally:
        server.close()
    return kills


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_twenty_kills_change_nothing(tmp_path):
    folders = [tmp_path / problem for problem in PROBLEMS]
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(kill_and_compare, PROBLEMS, folders)) == [KILLS, KILLS]
