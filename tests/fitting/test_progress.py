import io
import sys

from quick_fits import TABLE, cycle

import fle
from fle.fitting import Silent, TerminalBar
from fle.screen import FRESH, default_progress, doing

TRAINING = fle.Recipe(steps=2, batch_size=20, weight_decay=0.0)


class Recorder:
    def __init__(self):
        self.calls = []

    def start(self, stages, title):
        self.calls.append(("start", stages, title))

    def advance(self, stage, loss):
        self.calls.append(("advance", stage, loss))

    def finish(self):
        self.calls.append(("finish",))


def test_progress_is_told_of_every_stage_in_order():
    recorder = Recorder()
    result = fle.evaluate(
        cycle(100), [1.0], horizon=3, model=TABLE, recipe=TRAINING, progress=recorder
    )
    losses = [record.held_out_loss for record in result.records]
    assert recorder.calls == [
        ("start", 3, "gaussian"),
        *[("advance", stage + 1, loss) for stage, loss in enumerate(losses)],
        ("finish",),
    ]


def test_nothing_is_printed_into_a_pipe(capfd):
    fle.evaluate(cycle(100), [1.0], horizon=3, model=TABLE, recipe=TRAINING)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


def test_a_terminal_gets_a_bar(monkeypatch):
    assert isinstance(default_progress(), Silent)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert isinstance(default_progress(), TerminalBar)


def test_bar_shows_stage_loss_and_time_left(monkeypatch):
    clock = iter([130.0, 160.0, 190.0])
    monkeypatch.setattr("fle.screen.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    bar = TerminalBar(stream, width=8)
    bar.start(4, "gmm")
    assert "gmm ░░░░░░░░ stage 0/4" in stream.getvalue()
    bar.advance(1, 0.51234)
    # Mostly compilation, which says nothing about the others.
    assert stream.getvalue().endswith("██░░░░░░ stage 1/4  loss 0.5123")
    bar.advance(2, -1.5)
    # 30 seconds for one stage, two to go.
    assert "████░░░░ stage 2/4  loss -1.5  1:00 left" in stream.getvalue()
    bar.advance(3, 0.0)
    assert "██████░░ stage 3/4  loss 0  0:30 left" in stream.getvalue()
    bar.finish()
    lines = stream.getvalue()
    assert lines.endswith("\n")
    # Drawn over itself: one line in all.
    assert lines.count("\n") == 1
    assert lines.count("\r") == 4


def test_a_fit_that_goes_on_counts_from_where_it_was(monkeypatch):
    clock = iter([100.0, 110.0])
    monkeypatch.setattr("fle.screen.time.monotonic", lambda: next(clock))
    stream = io.StringIO()
    bar = TerminalBar(stream)
    bar.start(10, "gmm")
    bar.advance(6, 0.0)
    bar.advance(7, 0.0)
    # Ten seconds for one stage, three to go.
    assert stream.getvalue().endswith("0:30 left")


def test_a_terminal_is_told_what_is_being_done(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    with doing("reading logs.csv"):
        pass
    assert screen.getvalue() == ""
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    with doing("reading logs.csv"):
        assert screen.getvalue() == f"{FRESH}reading logs.csv ..."
    assert screen.getvalue().endswith(FRESH)
