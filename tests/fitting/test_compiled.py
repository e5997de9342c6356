"""Where compiled code is kept, and when it is not."""

import os
from pathlib import Path

import jax
import pytest

from fle.fitting import optimiser as compilation

SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's cache of one's own, and JAX as it was afterwards."""
    before = {name: jax.config.values[name] for name in SETTINGS}
    monkeypatch.setattr(compilation.sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    jax.config.update("jax_compilation_cache_dir", None)
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)


def kept_in():
    return jax.config.values["jax_compilation_cache_dir"]


def test_it_is_kept_for_its_owner(home):
    compilation.keep_compiled()
    assert kept_in() == str(home / "fle" / "jax")
    assert (home / "fle" / "jax").stat().st_mode & 0o077 == 0


def test_the_switch_and_the_user_s_own_choice(home, monkeypatch):
    monkeypatch.setenv(compilation.SWITCH, "off")
    compilation.keep_compiled()
    assert kept_in() is None
    monkeypatch.delenv(compilation.SWITCH, raising=False)
    jax.config.update("jax_compilation_cache_dir", "elsewhere")
    compilation.keep_compiled()
    assert kept_in() == "elsewhere"
    assert list(home.iterdir()) == []


def test_no_place_for_it_is_no_error(home, monkeypatch):
    (home / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    compilation.keep_compiled()
    assert kept_in() is None


def test_the_oldest_go_first(home, monkeypatch):
    folder = home / "fle" / "jax"
    folder.mkdir(parents=True)
    for age, name in enumerate(("new", "middle", "old")):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (1e9 - age, 1e9 - age))
    monkeypatch.setattr(compilation, "MOST_BYTES", 250)
    compilation.keep_compiled()
    assert {path.name for path in folder.iterdir()} == {"new", "middle"}


@pytest.mark.parametrize(
    ("platform", "place"),
    [("darwin", "Library/Caches"), ("win32", "AppData/Local"), ("linux", ".cache")],
)
def test_each_system_has_its_place(monkeypatch, tmp_path, platform, place):
    monkeypatch.setattr(compilation.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    assert compilation.user_cache() == tmp_path / place
