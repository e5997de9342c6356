"""Where results were made: machine, versions and commit."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import fle

PACKAGES = ("fle", "jax", "jaxlib", "numpy", "scipy", "equinox", "flowjax", "diffrax")


def describe() -> dict[str, Any]:
    """Plain values for a file."""
    return {
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count() or 1,
            "system": f"{platform.system()} {platform.machine()}",
        },
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": _commit(),
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _cpu_model() -> str:
    """The processor's name where the system tells it, else its architecture."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if platform.system() == "Darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.processor()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The commit of the package's own checkout; installed packages have none."""
    folder = str(Path(fle.__file__).parent)
    if not _output("git", "-C", folder, "ls-files", "__init__.py"):
        return "unknown"
    commit = _output("git", "-C", folder, "rev-parse", "HEAD")
    changed = _output("git", "-C", folder, "status", "--porcelain", "--", ".")
    return f"{commit} with changes" if changed else commit


def _output(command: str, *arguments: str) -> str:
    program = shutil.which(command)
    if program is None:
        return ""
    answer = subprocess.run(  # noqa: S603
        [program, *arguments], capture_output=True, text=True, check=False, timeout=10
    )
    return answer.stdout.strip() if answer.returncode == 0 else ""
