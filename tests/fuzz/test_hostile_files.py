"""Thousands of files of hostile structure: each is refused with an FLEError, or read.

In a process of its own, which a parser may end and which has a limit of memory; the long run is
`benchmarks/fuzz.py --cases 200000`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
CASES = 5_000


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits and alarms of POSIX")
def test_nothing_but_an_error_of_ours_comes_out(tmp_path):
    out = tmp_path / "fuzz.json"
    command = [sys.executable, str(SCRIPT), "--cases", str(CASES), "--out", str(out)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    last = out.with_suffix(".last")
    assert not last.exists(), f"the process died at {last.read_text()}: {answer.stderr[-2000:]}"
    found = json.loads(out.read_text())
    assert found["faults"] == []
    # Each kind is met by errors, and what is harmless is still read. Kept answers that are damaged
    # are no error: the policy is asked again.
    met = {kind: counts.get("refused", 0) for kind, counts in found["by_kind"].items()}
    assert met.pop("answers") == 0
    assert min(met.values()) > CASES / 60, met
    assert sum(counts.get("read", 0) for counts in found["by_kind"].values()) > CASES / 60
