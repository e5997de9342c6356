"""A run that was changed after it was written is refused, whichever file was changed, and how."""

import json
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from quick_runs import copied, evaluate, sealed

from fle.errors import FLEError, SettingsError
from fle.fitting import load
from fle.fitting.runs import require_key, seal_run
from fle.manifests import write_manifest

KEY, OTHER = b"sixteen bytes or more", b"another key of as many"


def change(path, **changes):
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, **changes}))


FORGERIES = {
    "warnings removed": lambda run: change(run / "result.json", warnings=[]),
    "notes changed": lambda run: change(run / "result.json", notes=["all is well"]),
    "coverage forged": lambda run: change(run / "result.json", coverage=None),
    "names changed": lambda run: change(run / "result.json", return_names=["profit"]),
    "another seed": lambda run: change(run / "run.json", seed=7),
    "samples replaced": lambda run: pq.write_table(
        pa.table({"reward": np.ones(10)}), run / "samples.parquet"
    ),
    "samples removed": lambda run: (run / "samples.parquet").unlink(),
    "result removed": lambda run: (run / "result.json").unlink(),
    "checkpoint changed": lambda run: next((run / "checkpoints").iterdir()).write_bytes(b"other"),
    "one byte more": lambda run: (run / "run.json").write_bytes(
        b" " + (run / "run.json").read_bytes()
    ),
    "a folder in its place": lambda run: (
        (run / "result.json").unlink(),
        (run / "result.json").mkdir(),
    ),
    "a pipe in its place": lambda run: (
        (run / "result.json").unlink(),
        os.mkfifo(run / "result.json"),
    ),
    "endless": lambda run: (
        (run / "samples.parquet").unlink(),
        (run / "samples.parquet").symlink_to("/dev/zero"),
    ),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_run_is_refused(finished, tmp_path, forgery):
    run = copied(finished, tmp_path / "run")
    FORGERIES[forgery](run)
    with pytest.raises(FLEError, match=r"not the file that was written|is missing|no.* plain file"):
        load(run)


def test_every_file_that_is_listed_counts(finished, tmp_path):
    for name in json.loads((finished / "manifest.json").read_text())["files"]:
        run = copied(finished, tmp_path / name.replace("/", "-"))
        content = bytearray((run / name).read_bytes())
        content[len(content) // 2] ^= 1
        (run / name).write_bytes(content)
        with pytest.raises(FLEError, match=rf"{name} is not the file that was written"):
            load(run)


# A name of this length is one that the system itself refuses to look for.
MANIFEST_OF = b'{"format": 1, "files": {"%s": 3}, "signature": null}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is cut or damaged"),
        (b"{}", "is damaged, or of another version"),
        (b'{"format": 1, "files": [], "signature": null}', "is damaged"),
        (b'{"format": 1, "files": {}, "signature": null}', "does not list run.json"),
        (b'{"format": 1, "files": {"../x": {}}, "signature": null}', "which is no file of a run"),
        (b'{"format": 1, "files": {"/etc/passwd": 1}, "signature": null}', "no file of a run"),
        (MANIFEST_OF % ("a" * 300).encode(), "no file of a run"),
        (MANIFEST_OF % ("x/" + "a" * 200).encode(), "no file of a run"),
        (MANIFEST_OF % ("é" * 150).encode(), "no file of a run"),
        (b'{"format": 1, "files": {"run.json": 3}, "signature": null}', "not the file that was"),
    ],
)
def test_a_manifest_that_is_none(finished, tmp_path, content, message):
    run = copied(finished, tmp_path / "run")
    (run / "manifest.json").write_bytes(content)
    with pytest.raises(FLEError, match=message):
        load(run)


def test_a_run_without_its_manifest_is_finished_again(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    (run / "manifest.json").unlink()
    with pytest.raises(FLEError, match=r"has a result but no manifest.json.*Repeat the call"):
        load(run)
    evaluate(out=run)
    assert np.array_equal(load(run).returns.samples, load(finished).returns.samples)


def test_a_forged_run_does_not_go_on(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    change(run / "result.json", warnings=[])
    with pytest.raises(FLEError, match="not the file that was written"):
        evaluate(out=run)


def test_a_signature_tells_who_wrote_it(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    with pytest.raises(FLEError, match="is not signed, and a key was given"):
        load(run, key=KEY)
    load(run).save(tmp_path / "signed", key=KEY)
    signed, key = tmp_path / "signed", tmp_path / "team.key"
    key.write_bytes(KEY + b"\n")
    expected = load(finished).returns.samples
    for right in (KEY, key, str(key), None):
        assert np.array_equal(load(signed, key=right).returns.samples, expected)
    with pytest.raises(FLEError, match="was not signed with this key"):
        load(signed, key=OTHER)
    # Who has no key can make all hashes right, and no signature.
    signature = json.loads((signed / "manifest.json").read_text())["signature"]
    change(signed / "result.json", warnings=[])
    load(sealed(signed))
    with pytest.raises(FLEError, match="is not signed"):
        load(signed, key=KEY)
    change(signed / "manifest.json", signature=signature)
    with pytest.raises(FLEError, match="was not signed with this key"):
        load(signed, key=KEY)


def test_keys_that_are_none(finished, tmp_path):
    short = tmp_path / "short.key"
    short.write_bytes(b"short\n")
    for key in (b"", b"short", short):
        with pytest.raises(FLEError, match=r"The key has \d bytes; expected at least 16"):
            write_manifest(finished, [], key)
    with pytest.raises(FLEError, match=r"absent.key cannot be read: it is not there"):
        load(shutil.copytree(finished, tmp_path / "run"), key=tmp_path / "absent.key")


def test_a_signed_run_is_not_written_to_without_its_key(finished, tmp_path):
    run = copied(finished, tmp_path / "run")
    seal_run(run, KEY)
    with pytest.raises(SettingsError, match=r"is signed. Give the key"):
        require_key(run, None)
    with pytest.raises(FLEError, match="was not signed with this key"):
        require_key(run, OTHER)
    require_key(run, KEY)
