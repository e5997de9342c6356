import json

import pytest
from sample_runs import key, made_up_run

from fle.errors import FLEError
from fle.paper.presets import keys_of
from fle.paper.store import Store


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path / "out", quick=False)
    made.prepare()
    return made


def test_only_missing_runs_are_made_again(store):
    keys = list(keys_of("1d", ("gmm", "categorical"), ("ours",), range(2)))
    assert store.missing(keys) == keys
    store.make(keys[0], made_up_run)
    store.make(keys[3], made_up_run)
    assert store.missing(keys) == keys[1:3]


def test_a_run_with_other_settings_is_missing_and_left_out(store):
    store.make(key(), made_up_run)
    path = store.directory / "runs" / key().file_name
    run = json.loads(path.read_text())
    run["settings"]["training"]["steps"] += 1
    path.write_text(json.dumps(run))
    assert store.missing([key()]) == [key()]
    assert store.collect() == ([], [key().file_name])


def test_a_run_that_fails_leaves_no_file(store):
    def fails(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.make(key(), fails)
    assert list((store.directory / "runs").iterdir()) == []


def test_a_damaged_file_is_named(store):
    store.make(key(), made_up_run)
    path = store.directory / "runs" / key().file_name
    path.write_text(path.read_text()[:100])
    with pytest.raises(FLEError, match=path.name):
        store.missing([key()])


def test_quick_runs_are_kept_apart(store, tmp_path):
    store.make(key(), made_up_run)
    quick = Store(tmp_path / "out", quick=True)
    quick.prepare()
    assert quick.missing([key()]) == [key()]
    quick.make(key(), made_up_run)
    assert store.missing([key()]) == []
    assert len(store.collect().runs) == len(quick.collect().runs) == 1
