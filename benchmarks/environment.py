"""What every benchmark result carries with it: machine, versions and commit."""

import platform
import subprocess
from importlib.metadata import version


def describe() -> dict[str, object]:
    """Machine, versions and commit of this run."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "machine": f"{platform.machine()}, {_cores()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("fle", "jax", "equinox", "optax", "numpy")},
        "commit": commit or "unknown",
    }


def _cores() -> int:
    import os

    return os.cpu_count() or 1
