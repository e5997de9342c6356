import argparse
import json
import struct
import threading
import time
import zlib

import numpy as np
import pytest
from sample_runs import made_up_run

from fle.errors import FLEError
from fle.files import read_json, write_json
from fle.paper import command, lock_runs, theory
from fle.paper.command import RunsBar
from fle.paper.results import png_image
from fle.paper.theory import Study


def reproduce(*arguments):
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    options = parser.parse_args(["reproduce", *arguments])
    return options.run(options)


def made_up_study(sizes, seeds):
    """Errors n^(-1/2), and a bound that is twice as large."""
    errors = np.repeat(1 / np.sqrt(np.array(sizes, float))[:, None], len(seeds), axis=1)
    bounds = {"theorem": 2 * errors}
    return Study("lqr", "total variation", np.array(sizes, float), errors, bounds, 1.5)


@pytest.fixture
def performed(monkeypatch):
    """Runs cost nothing, and are counted."""
    made = []

    def perform(key, setting, progress):
        made.append(key)
        return made_up_run(key, setting)

    monkeypatch.setattr(lock_runs, "perform", perform)
    monkeypatch.setitem(theory.STUDIES, "lqr", made_up_study)
    return made


def test_everything_is_written_and_nothing_is_made_twice(performed, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    arguments = ("1d", "lqr", "--seeds", "2", "--methods", "gmm", "categorical", "--out", str(out))
    assert reproduce(*arguments) == 0
    assert len(performed) == 2 * 2 * 2
    printed = capsys.readouterr().out
    for text in ("gmm, published", "gmm, ours", "gmm, paper", "sampling floor", "Theory: lqr"):
        assert text in printed
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert {"cpu", "cores", "system"} == set(results["machine"])
    assert {"commit", "versions", "checks", "studies"} <= set(results)
    first = results["tables"][0]
    assert first["seeds"] == [0, 1]
    assert np.allclose(np.mean(first["each"], axis=0), first["mean"])
    assert len(first["mean"]) == len(first["sampling_floor"]) == 20
    assert results["studies"]["lqr"]["slope"] == pytest.approx(-0.5)
    for name in ("densities-ours", "densities-paper", "study-lqr"):
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (out / "figures" / f"{name}.svg").read_text(encoding="utf-8")
    page = (out / "index.html").read_text(encoding="utf-8")
    assert page.count("<img") == 3
    assert "http://" not in page.replace("http://www.w3.org", "")

    # The figures are there; drawing them again only takes time.
    monkeypatch.setattr("fle.paper.results.write_figures", lambda *_: None)
    assert reproduce(*arguments) == 0
    assert len(performed) == 8
    # More seeds: only the new ones.
    assert reproduce("1d", "--seeds", "3", "--methods", "gmm", "--out", str(out)) == 0
    assert len(performed) == 10
    assert "Theory: lqr" in capsys.readouterr().out


def test_an_interrupted_reproduction_goes_on(performed, tmp_path, monkeypatch, capsys):
    counting = lock_runs.perform

    def interrupted(key, setting, progress):
        if len(performed) == 2:
            raise KeyboardInterrupt
        return counting(key, setting, progress)

    arguments = ("2d", "--quick", "--jobs", "1", "--out", str(tmp_path))
    monkeypatch.setattr(lock_runs, "perform", interrupted)
    assert reproduce(*arguments) == command.INTERRUPTED
    assert "goes on" in capsys.readouterr().err
    before = list(performed)
    monkeypatch.setattr(lock_runs, "perform", counting)
    assert reproduce(*arguments) == 0
    assert performed[:2] == before
    assert len(set(performed)) == len(performed) == 5
    assert "Quick" in capsys.readouterr().out
    assert (tmp_path / "figures" / "rings-ours.png").exists()


def test_runs_are_made_at_the_same_time_and_stop_together(performed, tmp_path, monkeypatch):
    both, begun = threading.Barrier(2, timeout=60), []

    def interrupted(key, setting, progress):
        begun.append(key)
        both.wait()
        if key.method == "categorical":
            raise KeyboardInterrupt
        progress.start(1_000_000, "test")
        for stage in range(1_000_000):
            time.sleep(0.001)
            progress.advance(stage, 0.0)
        raise AssertionError("not stopped")

    monkeypatch.setattr(lock_runs, "perform", interrupted)
    arguments = ("2d", "--quick", "--jobs", "2", "--out", str(tmp_path))
    assert reproduce(*arguments) == command.INTERRUPTED
    assert len(begun) == 2
    assert not list((tmp_path / "runs-quick").glob("*_seed*.json"))


def test_a_fit_above_the_ceiling_is_refused(tmp_path):
    """Runs have threads of their own, which know it too."""
    with pytest.raises(FLEError, match=r"would take about .* below the ceiling"):
        reproduce("1d", "--quick", "--methods", "gmm", "--memory", "1K", "--out", str(tmp_path))


def test_figures_need_one_seed(performed, tmp_path):
    assert (
        reproduce("figures", "--presets", "ours", "--methods", "gmm", "--out", str(tmp_path)) == 0
    )
    # Two run at a time, in either order.
    assert sorted((key.experiment, key.seed) for key in performed) == [("1d", 0), ("2d", 0)]


@pytest.mark.parametrize("arguments", [("3d",), ("1d", "--seeds", "0"), ("1d", "--methods", "em")])
def test_unknown_words_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        reproduce(*arguments)
    assert arguments[-1] in capsys.readouterr().err


def test_bar_weighs_runs_by_their_work():
    class Terminal:
        text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    stream = Terminal()
    bar = RunsBar([1.0, 3.0], stream, width=8)
    for number, label in enumerate(("short", "long")):
        run = bar.begin(number, label)
        run.start(2, "gmm")
        run.advance(1, 0.0)
        bar.end(run)
    bar.close()
    # Half of the short run is an eighth, half of the long one 1/4 + 3/8 = 5/8.
    drawn = stream.text.split("\r\x1b[K")
    assert [line.count("█") for line in drawn[1:]] == [0, 1, 2, 2, 5, 8]
    assert "2/2  long" in drawn[-1]


def test_png_holds_the_shares_as_opacity():
    picture = png_image(np.array([[0.0, 1.0], [0.5, 2.0]]), (1, 2, 3))
    width, height = struct.unpack(">II", picture[16:24])
    start = picture.index(b"IDAT") + 4
    body = zlib.decompress(picture[start : picture.index(b"IEND") - 8])
    assert (width, height) == (2, 2)
    assert body == bytes([0, 1, 2, 3, 0, 1, 2, 3, 255, 0, 1, 2, 3, 128, 1, 2, 3, 255])


def test_a_study_survives_its_file(tmp_path):
    path = tmp_path / "study.json"
    assert not theory.is_kept(path, quick=True)
    settings = theory.settings_of_studies(quick=True)
    study = made_up_study(settings["sizes"], settings["seeds"])
    write_json(path, theory.as_plain(study, settings))
    assert theory.is_kept(path, quick=True)
    assert not theory.is_kept(path, quick=False)
    again = theory.from_plain(read_json(path))
    assert np.array_equal(again.errors, study.errors)
    assert again.slope == study.slope
    table = theory.table(again)
    assert "within 0.1" in table.remark
    assert table.rows[-1][2:] == ("0",)
