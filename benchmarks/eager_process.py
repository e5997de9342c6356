"""The eager loop as a process of its own, in an environment that has PyTorch."""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TORCH_ENVIRONMENT = HERE.parent / ".venv-torch"
TORCH_PACKAGES = ["torch==2.13.0", "numpy"]


class EagerLoop:
    """The eager GMM in its own process, idle between measurements."""

    def __init__(self, python: Path, shapes: dict[str, int]):
        options = [f"--{name}={value}" for name, value in shapes.items()]
        self._process = subprocess.Popen(
            [python, HERE / "eager_gmm.py", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.version = self._answer()["torch"]

    def _answer(self) -> dict[str, object]:
        return json.loads(self._process.stdout.readline())

    def milliseconds(self, kind: str, threads: int) -> list[float]:
        """Time of one step, by the clock and of the processor."""
        self._process.stdin.write(f"{kind} {threads}\n")
        self._process.stdin.flush()
        return self._answer()["milliseconds"]

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def torch_python() -> Path | None:
    """The interpreter of the eager loop's environment, made if missing; None if it cannot be."""
    python = TORCH_ENVIRONMENT / "bin" / "python"
    if _has_torch(python):
        return python
    print(f"Installing {' and '.join(TORCH_PACKAGES)} in {TORCH_ENVIRONMENT.name} ...", flush=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", TORCH_ENVIRONMENT], [*install, *TORCH_PACKAGES]):
        if subprocess.run(command, check=False).returncode != 0:
            break
    if _has_torch(python):
        return python
    print("PyTorch could not be installed: the comparison with the eager loop is left out.")
    return None


def _has_torch(python: Path) -> bool:
    if not python.exists():
        return False
    command = [python, "-c", "import torch"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
