"""What `pip install fle` alone must do: read CSV, evaluate, save, load, and write tables."""

import csv
import importlib.util
import random
import subprocess
import sys
import warnings
from pathlib import Path

OPTIONAL = ("pyarrow", "altair", "jinja2", "onnx", "h5py", "pandas")
FIT = ("--model", "gaussian", "--recipe", "steps=20", "--quick")


def write_log(path):
    """60 episodes of three steps."""
    draw = random.Random(0)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["episode", "step", "observation.mood", "action", "reward", "terminated"])
        for episode in range(60):
            for step in range(3):
                action = draw.choice(["A", "B"])
                earned = draw.gauss(1.0 if action == "A" else 0.0, 1.0)
                mood = round(draw.random(), 3)
                rows.writerow([episode, step, mood, action, round(earned, 3), step == 2])


def main():
    """Go from a file to a page."""
    import fle

    present = [name for name in OPTIONAL if importlib.util.find_spec(name) is not None]
    assert not present, f"not a bare environment: {present}"
    assert (Path(fle.__file__).parent / "py.typed").exists()
    write_log(Path("log.csv"))
    words = ["evaluate", "log.csv", "--policy", "behaviour", "--horizon", "3", *FIT, "--out", "run"]
    subprocess.run([sys.executable, "-m", "fle", *words], check=True)
    assert "mean" in Path("run/report.html").read_text()
    warnings.simplefilter("ignore")
    result = fle.load("run")
    result.save("copy")
    assert fle.load("copy").returns.mean() == result.returns.mean()
    print(f"a first answer from the wheel alone: {result.returns.mean():.3f}")


main()
