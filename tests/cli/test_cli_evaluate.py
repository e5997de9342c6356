"""`fle evaluate` from the file to the report, and what is said on the way."""

import io
import json
import re
import shutil

import numpy as np
import pytest
from cli_runs import EPISODES, LENGTH, QUICK, ROWS, log, onnx_policy, run, run_once, write

from fle.cli.messages import Messages
from fle.data import read_cache
from fle.fitting import load
from fle.fitting.runs import seal_run
from fle.manifests import write_manifest

HOSTILE = "<script>alert(1)</script>"
TAIL = "Only about 10 of 100000 draws lie in a tail of 0.0001"


def awkward_log():
    """Two rewards, one with a heavy tail and one that is constant; some episodes were cut off."""
    last = np.tile(np.arange(LENGTH) == LENGTH - 1, EPISODES)
    cut = last & (np.arange(ROWS) < ROWS // 2)
    return log(
        reward=None,
        terminated=last & ~cut,
        truncated=cut,
        **{
            "reward.gain": np.random.default_rng(5).standard_cauchy(ROWS),
            f"reward.{HOSTILE}": np.zeros(ROWS),
            "next_observation.x": np.append(log()["observation.x"][1:], 0.0),
            "next_observation.y": np.append(log()["observation.y"][1:], 0.0),
        },
    )


WARNINGS = ("heavy tail", "point mass", "33% of the horizon is extrapolated", TAIL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evaluate")
    write(folder, awkward_log())
    onnx_policy(folder)
    return folder


def command(folder, *words, out="run"):
    return (
        *("evaluate", folder / "log.parquet", "--policy", folder / "policy.onnx"),
        *("--gamma", "0.9", "--horizon", "6", *QUICK, "--weights", "-1,2"),
        *("--measure", "cvar:0.0001", "--measure", "below:-2", "--out", folder / out, *words),
    )


@pytest.fixture(scope="module")
def first(folder):
    """What is printed when the run is made."""
    return run_once(*command(folder))


@pytest.fixture(scope="module")
def finished(folder, first):
    """The directory of the finished run."""
    assert first.code == 0
    return folder / "run"


@pytest.fixture(scope="module")
def second(folder, finished):
    """The same command again, for machines: the finished run is found."""
    return run_once(*command(folder, "--json"))


def test_the_table(first, finished):
    lines = first.out.splitlines()
    assert "return over 6 steps, discounted by gamma = 0.9; model gaussian" in first.out
    assert "note: returns are discounted by 0.9 and end after 6 steps" in lines
    assert lines[-1] == f"report: {finished / 'report.html'}"
    assert lines[0] == "verdict: caution"
    # Half of the episodes were cut off after four of six steps: what they earned is another return.
    assert any("logged episodes were cut off" in line and "not shown" in line for line in lines)
    starts = [i for i, line in enumerate(lines) if re.search("  target policy$", line)]
    assert [lines[i].split("  ")[0] for i in starts] == ["gain", HOSTILE, f"-1 gain + 2 {HOSTILE}"]
    for i in starts:
        table = lines[i : i + 11]
        assert len({len(line) for line in table}) == 1
    # The same numbers as in Python.
    returns = load(finished).returns.marginal("gain")
    shown = re.search(r"^mean +(-?[\d.,]+)", "\n".join(lines[starts[0] :]), re.MULTILINE)
    assert float(shown[1].replace(",", "")) == pytest.approx(returns.mean(), rel=0.01)


def test_warnings_are_on_stderr_in_the_document_and_in_the_report(first, second, finished):
    document = json.loads(second.out)
    page = (finished / "report.html").read_text(encoding="utf-8")
    for text in WARNINGS:
        assert first.err.count(text) == second.err.count(text) == 1
        assert any(text in warning for warning in document["warnings"])
        assert text in page


def test_the_document(second, finished):
    document = json.loads(second.out)
    assert document["exit_code"] == second.code == 0
    assert document["data"]["episodes"] == EPISODES
    assert (document["data"]["terminated"], document["data"]["truncated"]) == (30, 30)
    assert document["problem"] == {"gamma": 0.9, "horizon": 6, "rows": "all", "stages": 6}
    assert document["policy"]["coverage"]["enough"]
    assert list(document["returns"]) == ["gain", HOSTILE, "weighted sum"]
    law = load(finished).returns
    assert document["returns"]["gain"]["cvar:0.1"] == law.marginal("gain").cvar(0.1)
    total = law.scalarize([-1.0, 2.0])
    assert document["returns"]["weighted sum"]["below:-2"] == total.probability(below=-2)
    assert document["logged_returns"] is None
    assert document["verdict"]["level"] == "caution"
    assert document["visits"]["rows"] == document["data"]["rows"]
    assert document["report"] == str(finished / "report.html")


def test_the_run_directory(finished):
    present = {path.name for path in finished.iterdir() if not path.name.startswith(".")}
    assert present == {
        *("run.json", "run.toml", "result.json", "model.safetensors", "samples.parquet"),
        *("report.html", "data.arrow", "context.json", "checkpoints", "manifest.json"),
    }
    assert HOSTILE not in (finished / "report.html").read_text(encoding="utf-8")
    assert read_cache(finished / "data.arrow").fingerprint == load(finished).provenance.data


def test_the_options_it_leaves_behind(capsys, finished):
    """A run from its run.toml alone is the same run: another seed is what tells them apart."""
    answer = run(capsys, "evaluate", "--config", finished / "run.toml", "--seed", "1")
    assert answer.code == 2
    assert "has another fingerprint: seed (0 in the run, 1 now)" in answer.err
    assert "; " not in answer.err.split("fingerprint: ")[1].split(". ")[0]
    assert "--out" in answer.err


def test_the_report_is_drawn_again(capsys, folder, finished):
    page = (finished / "report.html").read_bytes()
    again = folder / "again.html"
    assert run(capsys, "report", finished, "--out", again).code == 0
    assert again.read_bytes() == page
    answer = run(capsys, "report", finished, "--out", again, "--title", HOSTILE, "--json")
    assert json.loads(answer.out)["report"] == str(again)
    written = again.read_text(encoding="utf-8")
    assert HOSTILE not in written
    assert "&lt;script&gt;alert(1)" in written
    damaged = folder / "damaged"
    shutil.copytree(finished, damaged)
    (damaged / "context.json").write_text('{"title": 1}')
    answer = run(capsys, "report", damaged)
    assert answer.code == 2
    assert "context.json is not the file that was written" in answer.err
    # Whoever forges a run can make its hashes right.
    write_manifest(damaged, json.loads((damaged / "manifest.json").read_text())["files"])
    answer = run(capsys, "report", damaged)
    assert answer.code == 2
    assert "context.json is damaged" in answer.err
    assert run(capsys, "report", finished, "--out", finished / "run.json" / "x").code == 2


def test_a_signed_run_is_read_and_written_with_its_key(capsys, folder, finished):
    signed, key = folder / "signed", folder / "team.key"
    shutil.copytree(finished, signed)
    key.write_text("0123456789abcdef0123456789abcdef\n")
    elsewhere = ("--out", folder / "elsewhere.html")
    answer = run(capsys, "report", signed, *elsewhere, "--sign-key", key)
    assert answer.code == 2
    assert "is not signed, and a key was given" in answer.err
    seal_run(signed, key)
    assert run(capsys, "report", signed, *elsewhere, "--sign-key", key).code == 0
    answer = run(capsys, "report", signed)
    assert answer.code == 2
    assert "is signed. Give the key that signed it (--sign-key)" in answer.err
    assert run(capsys, "report", signed, "--sign-key", key, "--title", "Again").code == 0
    assert "Again" in (signed / "report.html").read_text(encoding="utf-8")
    load(signed, key=key)


def returns_of(capsys, data, *words):
    given = ("--policy", "columns", "--number-of-actions", 2, "--horizon", "4", *QUICK, "--json")
    answer = run(capsys, "evaluate", data, *given, *words)
    assert answer.code == 0
    return json.loads(answer.out)["returns"]["return"]


def with_probabilities(first, **changes):
    columns = {"probability.0": np.full(ROWS, first), "probability.1": np.full(ROWS, 1 - first)}
    return log(**columns, **changes)


@pytest.mark.parametrize("scale", [1e9, 1e-9])
def test_rewards_of_any_scale(capsys, tmp_path, scale):
    plain = returns_of(capsys, write(tmp_path, with_probabilities(0.5)))
    columns = with_probabilities(0.5, reward=scale * log()["reward"])
    scaled = returns_of(capsys, write(tmp_path, columns))
    for name in ("mean", "std", "cvar:0.1", "quantile:0.95"):
        # The same training in units of the reward, but for single precision.
        assert scaled[name] / scale == pytest.approx(plain[name], rel=1e-3, abs=1e-3 * plain["std"])


def test_numbers_without_coverage_are_given_on_demand_only(capsys, tmp_path):
    columns = with_probabilities(0.0, action=np.zeros(ROWS, dtype=int))
    data, out = write(tmp_path, columns), tmp_path / "run"
    assert np.isfinite(returns_of(capsys, data, "--anyway", "--out", out)["mean"])
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Verdict: do not use" in page
    assert "There is no headline number" in page
    assert "100.0% of its actions were never logged there" in page


def test_the_estimate_comes_first_and_its_interval_follows(folder, monkeypatch, capsys):
    """By default, and not in a first look."""
    monkeypatch.setattr("fle.cli.inputs.USUAL_LEVEL", 0.9)
    words = (*("evaluate", folder / "log.parquet", "--policy", "behaviour"), "--horizon", "2")
    # Two replicates of such rewards know nothing of a tail, and the verdict says so.
    few = (*QUICK, "--replicates", "2", "--anyway")
    out = run(capsys, *words, *few).out
    alone, both = out.index("target policy"), out.index("90% interval")
    assert out.startswith("verdict: ")
    assert alone < both < out.index("intervals: 90% intervals from 2 fits")
    assert alone < out.index("intervals follow, from 2 more fits") < both
    # No advice to ask for what follows.
    assert "--interval 0.9" not in out[:both]
    plans = {
        given: "interval  " in run(capsys, *words, *QUICK, *given, "--plan").out
        for given in ((), ("--quick",), ("--interval", "none"))
    }
    assert plans == {(): True, ("--quick",): False, ("--interval", "none"): False}


def test_who_reads_no_further_does_not_stop_the_run():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    messages = Messages()
    messages.answers = Closed()
    messages.answer(["mean 1"])
    assert messages.answers is None
