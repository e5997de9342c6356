"""Compiled code is kept in the user's cache, so that the next run need not compile again."""

import os
import sys
from contextlib import suppress
from pathlib import Path

import jax

SWITCH = "FLE_COMPILATION_CACHE"
MOST_BYTES = 512 * 2**20
# Quicker compilations are not worth a file.
LEAST_SECONDS = 0.3


def keep_compiled() -> None:
    """Turn the cache on, unless it is switched off or the user chose one for JAX."""
    if os.environ.get(SWITCH, "").lower() in ("off", "0", "no", "false"):
        return
    if jax.config.values.get("jax_compilation_cache_dir"):
        return
    # Without a cache, or a home to keep it in, everything works.
    with suppress(OSError, RuntimeError):
        folder = user_cache() / "fle" / "jax"
        # Compiled code is run, so nobody else may write it.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            _remove_oldest(folder)
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def user_cache() -> Path:
    """Where the system wants caches of this user."""
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _remove_oldest(folder: Path) -> None:
    files = [(path.stat().st_mtime, path.stat().st_size, path) for path in folder.iterdir()]
    total = 0
    for _, size, path in sorted(files, reverse=True):
        total += size
        if total > MOST_BYTES:
            path.unlink(missing_ok=True)
