"""Files that look right and are not: structure, not bytes, is what is wrong with them.

Every function writes one file, or one run directory, from a generator, and returns what to do with
it. `fuzz.py` and the tests call them.
"""

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from onnx import TensorProto, helper, numpy_helper

import fle
from fle.cli.commands import COMMANDS
from fle.cli.compare_command import run_folders
from fle.cli.entry import read_config
from fle.cli.inputs import listed_policies
from fle.executors import JobsFile
from fle.fitting.evaluation import Evaluation
from fle.fitting.jobs import is_finished, jobs_of, require_same
from fle.fitting.loop import blank_fit
from fle.fitting.measurement import StageRecord
from fle.fitting.plan_files import PlanWriter, read_plan
from fle.fitting.runs import Growth, inherited
from fle.manifests import write_manifest
from fle.policies import load_policy, tabulate
from fle.policies.answers import Answers, settle
from fle.policies.function_policies import Probabilities
from fle.recipe import Recipe

Generator = np.random.Generator
Case = Callable[[], Any]
ROWS = 12
ROLES = ("observation", "action", "reward", "terminated", "truncated", "episode", "step")
ODD_NAMES = ("", " ", ".", "..", "a/b", "\u202e", "é" * 300, "observation", "observation.0", "\x00")
ODD_KEYS = ('""', '"\\u001b[2J"', "x" * 300, '"compare.json"', '"new\\nline"')
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**31, 10**12, 1e308, -1e-308, "", "text", "\u2028", "../x", "nan"),
    *([], [[]], [None], {}, {"a": {"b": [1]}}, [1, "2", [3]]),
)


def pick(generator: Generator, options: Any) -> Any:
    return options[int(generator.integers(len(options)))]


def usual(rows: int = ROWS) -> dict[str, Any]:
    """A log that can be read."""
    return {
        "observation.0": np.linspace(0, 1, rows),
        "observation.1": np.linspace(1, 0, rows),
        "action": np.arange(rows) % 2,
        "reward": np.cos(np.arange(rows)),
        "terminated": np.arange(rows) % 4 == 3,
    }


def read_unchanged(path: Path, written: dict[str, Any]) -> Any:
    """Read it, and hold the numbers against those written under the same names."""
    data = fle.read(path)
    found = dict(zip(data.reward_names, data.rewards.T, strict=True))
    if data.observations.ndim > 1:
        found |= dict(zip(data.observation_names, data.observations.T, strict=False))
    for name in found.keys() & written.keys():
        expected = np.asarray(written[name]).astype(float)[data.source_rows]
        if not np.allclose(found[name], expected, rtol=1e-6, atol=0, equal_nan=True):
            raise AssertionError(f"{name} was written as {expected}, and read as {found[name]}")
    return data


# --- Parquet


def arrow_column(generator: Generator, rows: int, depth: int = 0) -> pa.Array:
    """A column of any type, nested or not."""
    numbers = generator.integers(-3, 3, rows)
    nullable = [None if generator.random() < 0.2 else int(n) for n in numbers]
    kinds: list[Callable[[], pa.Array]] = [
        lambda: pa.array(numbers.astype(pick(generator, ("f2", "f4", "f8", "i1", "u8", "?")))),
        lambda: pa.array(nullable, pa.int64()),
        lambda: pa.array([str(n) for n in numbers]).dictionary_encode(),
        lambda: pa.array([bytes([n % 7]) * (n % 5) for n in numbers], pa.binary()),
        lambda: pa.array(numbers).cast(pa.timestamp("ns")),
        lambda: pa.array([[("k", int(n))] for n in numbers], pa.map_(pa.string(), pa.int8())),
        lambda: pa.array([None] * rows, pa.null()),
        lambda: pa.array(numbers.tolist(), pa.decimal128(38, 30)),
        lambda: pa.array([float(pick(generator, (np.nan, np.inf, 1e300, 0)))] * rows),
    ]
    if depth < 6:
        kinds += [
            lambda: nested_list(generator, rows, depth),
            lambda: pa.StructArray.from_arrays(
                [arrow_column(generator, rows, depth + 1) for _ in range(2)],
                names=[pick(generator, ODD_NAMES[1:8]), "b"],
            ),
        ]
    return pick(generator, kinds)()


def nested_list(generator: Generator, rows: int, depth: int) -> pa.Array:
    lengths = np.full(rows, generator.integers(0, 4))
    if generator.random() < 0.5:
        lengths = generator.integers(0, 4, rows)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, arrow_column(generator, int(lengths.sum()), depth + 1))


def parquet(generator: Generator, folder: Path) -> Case:
    rows = int(pick(generator, (0, 1, 2, ROWS)))
    columns: list[tuple[str, Any]] = [(name, pa.array(v)) for name, v in usual(rows).items()]
    for _ in range(int(generator.integers(1, 4))):
        name = pick(generator, (*ROLES, *ODD_NAMES[:9], "observation.01", "next_observation.0"))
        column = (name, arrow_column(generator, rows))
        if generator.random() < 0.5:
            columns[int(generator.integers(len(columns)))] = column
        else:
            columns.insert(int(generator.integers(len(columns))), column)
    table = pa.Table.from_arrays([c for _, c in columns], names=[n for n, _ in columns])
    path = folder / "log.parquet"
    pq.write_table(table, path, row_group_size=int(pick(generator, (1, 5, 100))))
    names = table.column_names
    numbers = {
        name: column.to_numpy()
        for name, column in zip(names, table.columns, strict=True)
        if names.count(name) == 1 and (pa.types.is_floating(column.type) or _whole(column))
    }
    return lambda: read_unchanged(path, numbers)


def _whole(column: pa.ChunkedArray) -> bool:
    return bool(pa.types.is_integer(column.type)) and not column.null_count


# --- HDF5


def hdf5(generator: Generator, folder: Path) -> Case:
    path = folder / "log.h5"
    with h5py.File(path, "w") as file:
        groups = [file]
        if generator.random() < 0.7:
            for name, values in usual().items():
                if name != "observation.1":
                    file[name.removesuffix(".0")] = values
        for _ in range(int(generator.integers(1, 12))):
            parent, name = pick(generator, groups), hdf5_name(generator)
            if name in parent:
                continue
            try:
                hdf5_entry(generator, parent, name, groups)
            except (ValueError, OSError, TypeError, RuntimeError):
                # What the library itself refuses to write needs no reader.
                continue
        rewards = file.get("reward")
        plain = isinstance(rewards, h5py.Dataset) and rewards.shape == (ROWS,)
        written = {"reward": rewards[:]} if plain and rewards.dtype.kind == "f" else {}
    return lambda: read_unchanged(path, written)


def hdf5_name(generator: Generator) -> str:
    episode = f"episode_{pick(generator, (0, 1, 10, 'x', '01'))}"
    names = (*ROLES, "observations", "actions", "rewards", "terminations", "truncations", episode)
    return str(pick(generator, (*names, "initial_observations", "é", "a", "b")))


def hdf5_entry(generator: Generator, parent: Any, name: str, groups: list[Any]) -> None:
    kind = int(generator.integers(10))
    if kind == 0:
        groups.append(parent.create_group(name))
    elif kind == 1:
        parent[name] = pick(generator, groups)
    elif kind == 2:
        parent[name] = h5py.SoftLink(pick(generator, ("/", "/nowhere", "/observation", ".")))
    elif kind == 3:
        parent[name] = h5py.ExternalLink("/etc/passwd", "/")
    elif kind == 4:
        shape = pick(generator, ((2**40,), (2**30, 3), (0, 5), (ROWS, 2**20), (2**20, 2**20)))
        parent.create_dataset(name, shape, pick(generator, ("f8", "i1")), chunks=True)
    elif kind == 5:
        layout = h5py.VirtualLayout((ROWS,), "f8")
        layout[:] = h5py.VirtualSource("elsewhere.h5", "data", (ROWS,))
        parent.create_virtual_dataset(name, layout)
    elif kind == 6:
        parent.create_dataset(name, data=np.zeros(ROWS, [("x", "f8"), ("y", "S3")]))
    elif kind == 7:
        strings = h5py.string_dtype()
        parent.create_dataset(name, data=[pick(generator, ("a", "é"))] * ROWS, dtype=strings)
    elif kind == 8:
        parent[name] = pick(generator, (1.0, "text", np.zeros((ROWS, 2, 2)), np.zeros(0)))
    else:
        parent[name] = generator.integers(-2, 3, ROWS).astype(pick(generator, ("f2", "i8", "?")))


# --- npz


def npz(generator: Generator, folder: Path) -> Case:
    path = folder / "log.npz"
    arrays = {name.replace(".", "_"): v for name, v in usual().items() if "ob" not in name}
    arrays["observations"] = np.zeros((ROWS, 2))
    kept = {name: values for name, values in arrays.items() if generator.random() < 0.95}
    np.savez(path, **kept)
    with zipfile.ZipFile(path, "a") as archive:
        for _ in range(int(generator.integers(1, 4))):
            name = pick(generator, (*arrays, "extra", "../out", "/abs", "initial_observations"))
            try:
                archive.writestr(f"{name}.npy", npy(generator))
            except ValueError:
                continue
        once = archive.namelist().count("reward.npy") == 1 and "reward" in kept
    return lambda: read_unchanged(path, {"reward": arrays["reward"]} if once else {})


def npy(generator: Generator) -> bytes:
    """An array whose header may say anything."""
    descr = pick(generator, ("<f8", "|O", "<U9", ">i4", "<c16", "|V8", "<M8[ns]", "<f2", "|b1"))
    shape = pick(
        generator, ((ROWS,), (2**40,), (0,), (), (ROWS, 2), (-1,), (ROWS, 0), (10**6,) * 4)
    )
    order = pick(generator, (True, False, 3))
    head = repr({"descr": descr, "fortran_order": order, "shape": shape})
    if generator.random() < 0.2:
        head = pick(generator, ("{}", "[" * 5000, "__import__('os').abort()", head + "#" * 9000))
    text = head.encode().ljust(118) + b"\n"
    content = bytes(generator.integers(0, 256, 8 * ROWS * 2, dtype=np.uint8))
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


# --- ONNX

OPERATORS = (
    *("Identity", "Relu", "Exp", "Softmax", "Transpose", "Reshape", "Concat", "Gather", "Slice"),
    *("MatMul", "Add", "Div", "Cast", "Shape", "ConstantOfShape", "Expand", "Tile", "TopK"),
    *("ReduceSum", "ArgMax", "Unsqueeze", "Squeeze", "NonZero", "Range", "OneHot", "Where", "If"),
    *("Loop", "RandomNormal", "StringNormalizer", "Optional", "SequenceEmpty", "Gemm", "LSTM"),
)


def onnx(generator: Generator, folder: Path) -> Case:
    known = ["obs", "weights", "shape", "huge", "zero"]
    nodes = [helper.make_node("MatMul", ["obs", "weights"], ["scores"])]
    known.append("scores")
    for number in range(int(generator.integers(0, 5))):
        inputs = [pick(generator, known) for _ in range(int(generator.integers(0, 4)))]
        output = f"t{number}"
        attributes = (
            {} if generator.random() < 0.7 else {"axis": pick(generator, (-9, 0, 1, 2**40))}
        )
        nodes.append(helper.make_node(pick(generator, OPERATORS), inputs, [output], **attributes))
        known.append(output)
    name = pick(generator, ("logits", "probs", "action", "mean"))
    last = known[-1] if generator.random() < 0.7 else "scores"
    nodes.append(helper.make_node("Identity", [last], [name]))
    constants = [
        numpy_helper.from_array(np.ones((2, 2), np.float32), "weights"),
        numpy_helper.from_array(np.array(pick(generator, ([-1, 2], [0], [2, 2]))), "shape"),
        numpy_helper.from_array(np.array([2**20, 2**20]), "huge"),
        numpy_helper.from_array(np.array(0), "zero"),
    ]
    shape = pick(generator, (["n", 2], ["n", 2], ["n", 2], [1, 2], [], ["n", "m"], [0, 2], [3, 2]))
    kinds = (*(TensorProto.FLOAT,) * 4, TensorProto.STRING, TensorProto.DOUBLE)
    kind = pick(generator, kinds)
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("obs", kind, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "k"])],
        constants,
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    if generator.random() < 0.3:
        entry = proto.metadata_props.add()
        entry.key, entry.value = "observation_names", json.dumps(pick(generator, VALUES))
    path = folder / "policy.onnx"
    path.write_bytes(proto.SerializeToString())

    def ask() -> Any:
        policy = load_policy(path, timeout=5.0)
        return tabulate(policy, np.zeros((5, 2)), number_of_actions=2, action_dim=None)

    return ask


# --- TOML


def toml(generator: Generator, folder: Path) -> Case:
    command = pick(generator, COMMANDS)
    names = [option.name for option in command.options] + ["nothing", "a.b", '"é"', "allow_code"]
    lines = [
        f"{pick(generator, names)} = {toml_value(generator)}"
        for _ in range(int(generator.integers(1, 6)))
    ]
    if generator.random() < 0.3:
        lines.append(pick(generator, ("[recipe]", "[[data]]", "[a.b.c]", "x = " + "[" * 3000)))
    path = folder / "run.toml"
    path.write_text("\n".join(lines))
    return lambda: read_config(path, command)


def toml_value(generator: Generator) -> str:
    plain = ("1", "-1", "1e400", "nan", "true", '""', '"x"', "1979-05-27", "0x7f", "9" * 5000)
    nested = ("[]", "[1, 'a']", "{}", "{a = {b = 1}}", "[[[[1]]]]", "{a.b.c = 1}", '"""\n"""')
    return str(pick(generator, (*plain, *nested)))


# --- Run directories

SAMPLES = "samples.parquet"


def make_run(folder: Path) -> None:
    """A finished run, without training."""
    columns = {name: np.asarray(values) for name, values in usual().items()}
    data = fle.Dataset(
        observations=np.stack([columns["observation.0"], columns["observation.1"]], axis=1),
        actions=columns["action"],
        rewards=np.linspace(0, 1, ROWS),
        terminations=columns["terminated"],
        observation_names=("x", "y"),
    )
    plan = fle.plan(data, [0.5, 0.5], horizon=2, model=fle.Gaussian(hidden=(4,)))
    fit = blank_fit(plan.model, plan.recipe, plan.encoder.sizes, 0)
    one = np.ones(1)
    names = {"problem", "model", "recipe", "encoder", "initial_inputs", "initial_weights"}
    evaluation = Evaluation(
        **{name: getattr(plan, name) for name in names},
        **{name: getattr(plan, name) for name in ("logged", "notes", "warnings", "provenance")},
        records=(StageRecord(1, None, 1.0, 0.5, np.nan, one, one, one, 0.1),),
        return_names=("reward",),
        fits=(fit, fit),
        coverage=plan.target.coverage,
    )
    evaluation.__dict__["returns"] = fle.ReturnDistribution.from_samples([0.0, 1.0])
    evaluation.save(folder / "run_directory")


def run_directory(generator: Generator, folder: Path, finished: Path) -> Case:
    run = folder / "run"
    shutil.copytree(finished, run)
    listed = list(json.loads((run / "manifest.json").read_text())["files"])
    before = contents(run, listed)
    for _ in range(int(generator.integers(1, 4))):
        name = pick(generator, ("result.json", "run.json", "manifest.json", *listed))
        if generator.random() < 0.8 and name.endswith(".json") and (run / name).is_file():
            change_json(generator, run / name)
        else:
            change_file(generator, run / name)
    # Who forges a run makes its hashes right, where there is something to hash.
    plain = [name for name in listed if (run / name).is_file() and not (run / name).is_symlink()]
    if generator.random() < 0.8 and not (run / "manifest.json").is_dir():
        write_manifest(run, plain)
        return lambda: go_on_from(fle.load(run))

    def load() -> Any:
        kept = [name for name in listed if name != SAMPLES or lists_samples(run)]
        after = contents(run, kept)
        loaded = fle.load(run)
        if after != {name: before[name] for name in kept}:
            raise AssertionError("a run was loaded whose files are not those of its manifest")
        return loaded

    return load


def go_on_from(loaded: Evaluation) -> Any:
    """What a run says, and what an evaluation would take from it."""
    columns = {name: np.asarray(values) for name, values in usual().items()}
    data = fle.Dataset(
        observations=np.stack([columns["observation.0"], columns["observation.1"]], axis=1),
        actions=columns["action"],
        rewards=columns["reward"],
        terminations=columns["terminated"],
    )
    Growth.since(loaded, data).in_words()
    return loaded._repr_html_(), repr(loaded), inherited(loaded, None, None, "auto", Recipe())


def lists_samples(run: Path) -> bool:
    """Whether the manifest names samples; a run may have none, and draws them from its model."""
    manifest = run / "manifest.json"
    if manifest.is_symlink() or not manifest.is_file():
        return True
    try:
        return SAMPLES in json.loads(manifest.read_bytes())["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return True


def contents(run: Path, names: list[str]) -> dict[str, bytes | None]:
    """Of plain files; None for what is no such file."""
    return {
        name: (run / name).read_bytes()
        if (run / name).is_file() and not (run / name).is_symlink()
        else None
        for name in names
    }


def change_json(generator: Generator, path: Path) -> None:
    try:
        value = json.loads(path.read_text())
    except ValueError:
        # Cut before.
        return
    here: Any = value
    while isinstance(here, dict | list) and here:
        key = pick(generator, list(here) if isinstance(here, dict) else range(len(here)))
        below = here[key]
        if not isinstance(below, dict | list) or not below or generator.random() < 0.3:
            choice = generator.random()
            if choice < 0.15 and isinstance(here, dict):
                del here[key]
            elif choice < 0.3 and isinstance(here, dict):
                here[pick(generator, ODD_NAMES[:9])] = below
            else:
                here[key] = pick(generator, VALUES)
            break
        here = below
    path.write_text(json.dumps(value))


def change_file(generator: Generator, path: Path) -> None:
    choice = int(generator.integers(6))
    if not path.is_file() or path.is_symlink():
        return
    content = path.read_bytes()
    path.unlink()
    if choice == 0:
        path.mkdir()
    elif choice == 1:
        path.symlink_to(pick(generator, ("/dev/zero", "/etc/passwd", path.name, "/nowhere")))
    elif choice == 2:
        os.mkfifo(path)
    elif choice == 3:
        path.write_bytes(content[: int(generator.integers(len(content) + 1))])
    elif choice == 4:
        path.write_bytes(content + b" " * int(generator.integers(1, 100)))


# --- Prepared logs


def make_prepared(folder: Path) -> None:
    """A prepared log."""
    source = folder / "log.parquet"
    pq.write_table(pa.table({name: np.asarray(values) for name, values in usual().items()}), source)
    for kind in ("prepared", "answers"):
        fle.prepare(source, folder / kind)


def prepared(generator: Generator, folder: Path, finished: Path) -> Case:
    log = folder / "log"
    shutil.copytree(finished, log)
    files = sorted(path.name for path in finished.iterdir() if path.name != ".lock")
    for _ in range(int(generator.integers(1, 4))):
        name = pick(generator, ("prepared.json", "prepared.json", "manifest.json", *files))
        if generator.random() < 0.8 and name.endswith(".json") and (log / name).is_file():
            change_json(generator, log / name)
        else:
            change_file(generator, log / name)
    plain = (log / "prepared.json").is_file() and not (log / "prepared.json").is_symlink()
    if plain and generator.random() < 0.8 and not (log / "manifest.json").is_dir():
        write_manifest(log, ["prepared.json"])
    return lambda: fle.open(log)


# --- Jobs


def make_jobs(folder: Path) -> None:
    """Jobs of a plan with intervals: two fits to resampled episodes, one to all."""
    columns = {name: np.asarray(values) for name, values in usual(10 * ROWS).items()}
    data = fle.Dataset(
        observations=np.stack([columns["observation.0"], columns["observation.1"]], axis=1),
        actions=columns["action"],
        rewards=columns["reward"],
        terminations=columns["terminated"],
    )
    plan = fle.plan(
        data,
        [0.5, 0.5],
        gamma=0.5,
        stages=2,
        model=fle.Gaussian(hidden=()),
        interval=fle.Interval(0.9, 2),
    )
    jobs = folder / "jobs"
    name = PlanWriter(jobs).write(plan)
    JobsFile.write(jobs, jobs_of(plan, "policy", name)).path.rename(jobs / "jobs.json")


def jobs(generator: Generator, folder: Path, finished: Path) -> Case:
    """A job is looked up, its plan read and held against it; nothing is trained."""
    here = folder / "jobs"
    shutil.copytree(finished, here)
    listed, plan = here / "jobs.json", next((here / "plans").iterdir())
    arrays = sorted((here / "arrays").iterdir())
    for _ in range(int(generator.integers(1, 4))):
        path = pick(generator, (listed, plan, plan, pick(generator, arrays)))
        if generator.random() < 0.8 and path.suffix == ".json" and path.is_file():
            change_json(generator, path)
        elif path.suffix == ".npy" and path.is_file() and generator.random() < 0.5:
            path.write_bytes(npy(generator))
        else:
            change_file(generator, path)
    if generator.random() < 0.8 and plan.is_file() and not plan.is_symlink():
        _forge(listed, plan)
    number = int(generator.integers(-1, 5))

    def read() -> Any:
        found = JobsFile.read(listed)
        job = found.job(number)
        require_same(read_plan(here, job.plan), job)
        return is_finished(job, here)

    return read


def _forge(listed: Path, plan: Path) -> None:
    """Make the plan that was changed be the one that is named."""
    name = hashlib.sha256(plan.read_bytes()).hexdigest()
    if not listed.is_file() or listed.is_symlink():
        return
    listed.write_text(listed.read_text().replace(plan.stem, name))
    plan.rename(plan.with_name(f"{name}.json"))


# --- Minari


def make_minari(folder: Path) -> None:
    """Three episodes in the storage that Minari writes."""
    data = folder / "minari" / "data"
    data.mkdir(parents=True)
    space = {"type": "Discrete", "n": 2, "start": 0}
    seen = {"type": "Box", "shape": [2], "dtype": "float64", "low": [0, 0], "high": [1, 1]}
    metadata = {
        "total_episodes": 3,
        "total_steps": 12,
        "action_space": json.dumps(space),
        "observation_space": json.dumps(seen),
        "data_format": "hdf5",
    }
    (data / "metadata.json").write_text(json.dumps(metadata))
    with h5py.File(data / "main_data.hdf5", "w") as file:
        for number in range(3):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.linspace(0, 1, 10).reshape(5, 2)
            group["actions"] = np.arange(4) % 2
            group["rewards"] = np.linspace(0, 1, 4)
            group["terminations"] = np.arange(4) == 3
            group["truncations"] = np.zeros(4, bool)


def minari(generator: Generator, folder: Path, finished: Path) -> Case:
    here = folder / "set"
    shutil.copytree(finished, here)
    metadata, main = here / "data" / "metadata.json", here / "data" / "main_data.hdf5"
    for _ in range(int(generator.integers(1, 3))):
        choice = generator.random()
        if choice < 0.4 and metadata.is_file():
            change_json(generator, metadata)
        elif choice < 0.7 and metadata.is_file():
            _change_space(generator, metadata)
        elif choice < 0.9 and main.is_file():
            _change_episodes(generator, main)
        else:
            change_file(generator, pick(generator, (metadata, main)))
    return lambda: fle.read(here)


def _change_space(generator: Generator, path: Path) -> None:
    """JSON inside of JSON."""
    try:
        plain = json.loads(path.read_text())
    except ValueError:
        return
    if not isinstance(plain, dict):
        return
    space = {"type": "Discrete", "n": pick(generator, VALUES), "start": pick(generator, VALUES)}
    image = {"dtype": "uint8", "shape": [pick(generator, VALUES), 40, 3]}
    nested = {"type": "Dict", "subspaces": pick(generator, ([image], {"a": image}, *VALUES))}
    text = pick(generator, (json.dumps(space), json.dumps(nested), "[" * 5000, "{", "7"))
    plain[pick(generator, ("action_space", "observation_space"))] = text
    if generator.random() < 0.3:
        plain["jpeg_encoding"] = True
    path.write_text(json.dumps(plain))


def _change_episodes(generator: Generator, path: Path) -> None:
    try:
        file = h5py.File(path, "a")
    except OSError:
        # Cut before.
        return
    with file:
        groups = [file, *(item for item in file.values() if isinstance(item, h5py.Group))]
        for _ in range(int(generator.integers(1, 4))):
            parent, name = pick(generator, groups), hdf5_name(generator)
            try:
                if name in parent:
                    del parent[name]
                hdf5_entry(generator, parent, name, groups)
            except (ValueError, OSError, TypeError, RuntimeError):
                continue


# --- Answers that are kept beside a prepared log


def answers(generator: Generator, folder: Path, finished: Path) -> Case:
    """Whatever is kept there, the answer is the policy's own."""
    log = folder / "log"
    shutil.copytree(finished, log)
    data = fle.open(log)
    policy = settle(Probabilities(_half), data)
    kept = Answers.of(data, "policy", 1, 0)
    expected = kept.at(policy, data, [(0, len(data))])
    path = next((log / "answers").glob("*/*.npz"))
    choice = int(generator.integers(5))
    if choice == 0:
        change_file(generator, path)
    elif choice == 1:
        path.unlink()
        compressed = zipfile.ZIP_DEFLATED if generator.random() < 0.5 else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", compressed) as archive:
            for name in ("probabilities", "actions", "mean", "std"):
                if generator.random() < 0.8:
                    archive.writestr(f"{name}.npy", npy(generator))
    elif choice == 2:
        rows = int(pick(generator, (len(data), 1, 0, 10**4)))
        shapes = ((rows, 2), (rows,), (rows, 2, 2), (rows, 0), (1, 2))
        table = {
            "probabilities": np.full(pick(generator, shapes), pick(generator, (0.4, np.nan, 2.0))),
            "actions": np.zeros(pick(generator, shapes), pick(generator, ("i8", "f8", "U3"))),
        }
        if generator.random() < 0.3:
            table |= {"mean": np.zeros(pick(generator, shapes)), "std": np.zeros((rows, 1))}
        np.savez(path, **table)
    elif choice == 3:
        shutil.rmtree(path.parent)
        path.parent.symlink_to(pick(generator, ("/tmp", "/nowhere", ".")))
    else:
        shutil.rmtree(log / "answers")
        (log / "answers").symlink_to(pick(generator, ("/tmp", "/nowhere", "answers")))

    def ask() -> Any:
        found = Answers.of(data, "policy", 1, 0).at(policy, data, [(0, len(data))])
        if not np.array_equal(found.probabilities, expected.probabilities):
            raise AssertionError("answers that are not the policy's were believed")
        return found

    return ask


def _half(observations: np.ndarray) -> np.ndarray:
    first = 1 / (1 + np.exp(-observations[:, 0]))
    return np.stack([first, 1 - first], axis=1)


# --- Tables of policies


def policy_table(generator: Generator, folder: Path) -> Case:
    names = ("a", "b", "c", '".."', '"/etc/x"', '"a/../../b"', '"."', '".x"', *ODD_KEYS)
    values = ('"old.onnx"', '"../x.onnx"', '"evil:f"', '"columns:p"', '"/etc/passwd"')
    chosen = generator.choice(names, int(generator.integers(0, 5)), replace=False)
    values = (*values, *values, toml_value(generator))
    table = [f"{name} = {pick(generator, values)}" for name in chosen]
    head = pick(generator, ("[policies]", "[policies]", "[policies]", "[[policies]]", "", "[a.b]"))
    tail = pick(generator, ("", "", "", "x = " + "[" * 3000))
    path = folder / "policies.toml"
    path.write_text("\n".join([head, *table, tail]))
    if generator.random() < 0.05:
        change_file(generator, path)

    def read() -> Any:
        found = listed_policies([str(path)], ["log.csv"])
        for where in run_folders(folder, list(found)).values():
            if where.parent != folder or where.name in ("", ".", ".."):
                raise AssertionError(f"a run would be written to {where}")
        return found

    return read


# --- CSV


def csv(generator: Generator, folder: Path) -> Case:
    """Text that looks like a table."""
    columns = {name: [str(v) for v in np.asarray(values)] for name, values in usual().items()}
    odd = ("", "nan", "1e999", "-", '"', '"a,b"', "\x00", "é", "31.12.2024", "1,5", "=1+1", "0x1")
    for _ in range(int(generator.integers(0, 3))):
        name = pick(generator, list(columns))
        columns[name][int(generator.integers(ROWS))] = pick(generator, odd)
    mark = pick(generator, (",", ",", ",", ";", "\t", "|"))
    lines = [mark.join(columns), *(mark.join(row) for row in zip(*columns.values(), strict=True))]
    for _ in range(int(generator.integers(0, 3))):
        place = int(generator.integers(len(lines)))
        lines[place] = pick(
            generator, (lines[place] + mark, "", lines[0], '"', lines[place] * 50, mark * 3000)
        )
    text = pick(generator, ("\n", "\n", "\r\n", "\r")).join(lines)
    path = folder / "log.csv"
    path.write_bytes(text.encode(pick(generator, ("utf-8", "utf-8", "utf-8-sig", "utf-16"))))
    return lambda: fle.read(path)


# By kind, what makes the finished folder of that name that is changed.
FINISHED: dict[str, Callable[[Path], None]] = {
    "run_directory": make_run,
    "prepared": make_prepared,
    "jobs": make_jobs,
    "minari": make_minari,
    "answers": lambda folder: None,
}
