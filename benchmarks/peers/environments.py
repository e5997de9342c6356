"""An environment for each peer, made once: PyTorch first, so that no other build is chosen."""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

# What is installed with its dependencies, and then without: SCOPE-RL asks for releases that no
# Python of today has.
NEEDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "d3rlpy": (("torch==2.13.0",), ("d3rlpy==2.8.1",)),
    "scope_rl": (
        ("torch==2.13.0",),
        ("d3rlpy==2.8.1", "scikit-learn", "pandas", "seaborn", "hydra-core"),
    ),
}
# The tasks run in Gymnasium as of this interpreter, whatever a peer asks for.
GYMNASIUM = f"gymnasium=={version('gymnasium')}"
ALONE = {
    "d3rlpy": (GYMNASIUM,),
    "scope_rl": (GYMNASIUM, "scope-rl==0.2.1", "pytorch-revgrad==0.2.0"),
}


def python_of(peer: str, folder: Path, say: Callable[[str], None]) -> Path:
    """The interpreter of a peer's environment, which is made where it is not there."""
    home = folder / peer
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    done = home / ".installed"
    if done.exists():
        return python
    say(f"installing {peer} in {home}")
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for packages in NEEDED[peer]:
        subprocess.run([*pip, *packages], check=True)
    subprocess.run([*pip, "--no-deps", *ALONE[peer]], check=True)
    done.touch()
    return python
