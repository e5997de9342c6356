"""Jobs and plans of strangers: files can name nothing but their own, and run nothing."""

import hashlib
import json
import os
import shutil
import sys
from contextlib import suppress

import numpy as np
import pytest
from small_jobs import plan

from fle.errors import FLEError
from fle.executors import JobsFile
from fle.files import plain_json
from fle.fitting.checkpoints import DamagedFileError
from fle.fitting.jobs import jobs_of, run_job
from fle.fitting.plan_files import PlanWriter, read_plan, stored_array


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder with the jobs of one plan, in jobs.json."""
    folder = tmp_path_factory.mktemp("jobs")
    made = plan()
    jobs = jobs_of(made, "policy", PlanWriter(folder).write(made))
    JobsFile.write(folder, jobs).path.rename(folder / "jobs.json")
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return shutil.copytree(written, tmp_path / "jobs")


@pytest.mark.parametrize(
    "changes",
    [
        {"key": "a" * 300},
        {"key": "../elsewhere"},
        {"key": "é" * 32},
        {"plan": "/etc/passwd"},
        {"plan": "a" * 300},
        {"needs": ["../../x"]},
        {"part": "anything"},
        {"part": "replicate"},
        {"replicate": -1},
        {"stages": 10**400},
        {"more": 1},
    ],
)
def test_a_job_names_nothing_but_hashes(folder, changes):
    content = json.loads((folder / "jobs.json").read_text())
    content["jobs"][0].update(changes)
    (folder / "jobs.json").write_text(json.dumps(content))
    with pytest.raises(FLEError, match=r"is not a job\. Write it again"):
        run_job(folder / "jobs.json", 0)


@pytest.mark.parametrize("place", ["run", "checkpoints"])
def test_no_run_is_written_through_a_link(folder, tmp_path, place):
    (tmp_path / "elsewhere").mkdir()
    run = folder / json.loads((folder / "jobs.json").read_text())["jobs"][0]["key"]
    if place == "checkpoints":
        run.mkdir()
        run /= "checkpoints"
    run.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FLEError, match="is a symbolic link"):
        run_job(folder / "jobs.json", 0)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def changed_plan(folder, change):
    """The name of a plan whose content was changed, and whose hash is right again."""
    path = next((folder / "plans").iterdir())
    content = json.loads(path.read_text())
    change(content)
    text = plain_json(content).encode()
    name = hashlib.sha256(text).hexdigest()
    (folder / "plans" / f"{name}.json").write_bytes(text)
    return name


@pytest.mark.parametrize(
    "name",
    ["fle.__main__:main", "fle.paper.command:run", "fle.policies.onnx_policy:OnnxProcess", "os:x"],
)
def test_a_plan_imports_nothing(folder, name):
    """Only the classes that plans are made of; to import `fle.__main__` is to run a command."""
    named = changed_plan(
        folder, lambda content: content["dict"].append(["x", {"class": name, "fields": {}}])
    )
    with pytest.raises(FLEError, match="no part of a plan"):
        read_plan(folder, named)


def places(content, path=()):
    """Every field of a plan, and of the values in it: where it stands, under what key, its name."""
    if not isinstance(content, dict):
        return
    for item in content.get("dict", ()):
        yield item, 1, (*path, item[0])
        yield from places(item[1], (*path, item[0]))
    for name, value in content.get("fields", {}).items():
        yield content["fields"], name, (*path, name)
        yield from places(value, (*path, name))


def test_a_field_of_another_type_is_refused(folder):
    """Wherever it is: what is made of a file without its constructor is asked as any other."""
    original = next((folder / "plans").iterdir())
    whole, accepted = json.loads(original.read_text()), []
    for place, (_, _, path) in enumerate(places(whole)):

        def change(content, place=place):
            where, key, _ = list(places(content))[place]
            where[key] = {"list": []}

        named = changed_plan(folder, change)
        with suppress(DamagedFileError):
            read_plan(folder, named)
            accepted.append(path)
        if named != original.stem:
            (folder / "plans" / f"{named}.json").unlink()
    # Of any type: what the policy was made of, and settings, which are part of the key of a job.
    assert {path[:2] for path in accepted} == {("target", "asked"), ("provenance", "settings")}


@pytest.mark.parametrize("rows", [10**30, -3, "x", 2.5, [1]])
def test_rows_that_are_none(folder, rows):
    def change(content):
        fields = dict(map(tuple, content["dict"]))
        fields["data"]["fields"]["observations"]["rows"] = rows

    with pytest.raises(FLEError, match="written by another version"):
        read_plan(folder, changed_plan(folder, change))


def lie(path):
    """A few bytes that say they are half a terabyte."""
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (68719476736,), }"
    path.write_bytes(path.read_bytes()[:10] + head.ljust(117) + b"\n")


def link(path):
    path.unlink()
    path.symlink_to("/dev/zero")


def pipe(path):
    path.unlink()
    os.mkfifo(path)


def objects(path):
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)


def archive(path):
    with path.open("wb") as file:
        np.savez(file, a=1)


@pytest.mark.skipif(sys.platform == "win32", reason="makes links and pipes")
@pytest.mark.parametrize("damage", [lie, link, pipe, objects, archive])
def test_arrays_that_are_not_those_of_the_plan(folder, damage):
    for path in (folder / "arrays").iterdir():
        damage(path)
    with pytest.raises(FLEError, match=r"another version|not a plain file"):
        read_plan(folder, next((folder / "plans").iterdir()).stem)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (300, 40), (2, 3, 4)])
def test_arrays_come_back_as_they_were(tmp_path, shape, order):
    values = np.asarray(np.arange(np.prod(shape)).reshape(shape), order=order)
    np.save(tmp_path / "a.npy", values)
    found = stored_array(tmp_path / "a.npy")
    assert (found.dtype, found.flags.f_contiguous) == (values.dtype, values.flags.f_contiguous)
    np.testing.assert_array_equal(found, values)
