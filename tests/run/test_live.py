"""What a run shows of itself: lines, and a view that fits the terminal."""

from __future__ import annotations

import io

import pytest
from results.made import cell_result
from rich.console import Console

from testbed.network.calibrate import Calibration
from testbed.network.probe import Choice
from testbed.plan.make import plan
from testbed.run.live import LiveView, PlainView, workers_table
from testbed.scenario.load import loads
from testbed.verdict import Verdict
from testbed.worker.progress import Where

MADE = plan(loads("workers: 3\nmethods: [dpsgd, {choco: {compressor: sign}}]", "s.yaml"))
COUNTERS = {"time": 1.0, "links": {"w0>w1": [0, 0, 0, 0, 0]}}
LATER = {"time": 2.0, "links": {"w0>w1": [1_250_000, 0, 0, 0, 0]}}
DONE = {
    "error": None,
    "shortcomings": ["memory could not be limited: [no] groups"],
    "step_s": 0.0123,
    "floor_s": 0.01,
    "bytes_per_step": 1000.0,
    "final": {"test_accuracy": 0.5, "test_loss": 1.25},
    "verdict": {"grade": "faithful"},
}


def where(step: int, loss: float = 0.5) -> Where:
    return Where(step, 1, max(0, 1000 * step), 0.01 * step, loss)


def console(width: int = 100, height: int = 30) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=True, color_system=None)


def said(view: PlainView) -> str:
    return view.console.file.getvalue()


def story(view: PlainView) -> None:
    view.network(MADE.network, Choice("uml", "no netem"), 2.0)
    view.calibrated("", Calibration((), Verdict("suspect", ("w0-w1: [slow] today",)), 0))
    view.begins(MADE.cells[0], 0, 2)
    view.progress(MADE.cells[0], [where(-1)] * 3, COUNTERS)
    view.progress(MADE.cells[0], [where(3), where(4), where(5)], LATER)
    view.ended(MADE.cells[0], cell_result(DONE))
    view.begins(MADE.cells[1], 1, 2)
    failure = {"error": "w1: [enforce fail] no memory", "hint": "smaller batch"}
    view.ended(MADE.cells[1], cell_result({**DONE, **failure}))
    diverged = {"diverged": {"worker": "w1", "step": 4}, "error": "w1: NaN at step 4"}
    view.ended(MADE.cells[1], cell_result({**DONE, **failure, **diverged}))
    view.close()


@pytest.mark.parametrize("kind", [PlainView, LiveView])
def test_both_tell_the_same_story(kind):
    view = kind(console())
    story(view)
    lines = said(view)
    for words in (
        "network up in 2.0 s: 3 workers, 3 links, box uml (no netem)",
        "links measured: suspect",
        "w0-w1: [slow] today",
        "cell 1 of 2: dpsgd",
        "12.3 ms per step, accuracy 50.0%, loss 1.250, faithful",
        "cell 2 of 2: choco compressor=sign",
        "failed: w1: [enforce fail] no memory",
        "diverged: w1: NaN at step 4",
        "→ smaller batch",
    ):
        assert words in lines
    assert lines.count("memory could not be limited: [no] groups") == 1


def test_plain_lines_have_no_tricks():
    view = PlainView(Console(file=io.StringIO(), width=150))
    story(view)
    assert "\x1b" not in said(view)


def test_the_live_view_shows_workers_links_and_time_left():
    view = LiveView(console())
    story(view)
    assert "w0>w1 10.0 Mbit/s" in said(view)
    assert "0.500" in said(view)
    view = LiveView(console())
    view.begins(MADE.cells[1], 1, 2)
    view.progress(MADE.cells[1], [where(1)], COUNTERS)
    view.close()
    assert "s left: choco" in said(view)


@pytest.mark.parametrize(("width", "height"), [(20, 24), (40, 10), (80, 8)])
def test_small_terminals_are_never_overrun(width, height):
    view = LiveView(console(width, height))
    view.network(MADE.network, Choice("uml", "no netem"), 2.0)
    view.begins(MADE.cells[0], 0, 1)
    view.progress(MADE.cells[0], [where(step) for step in (1, 2, 3)], COUNTERS)
    drawn = said(view).rpartition("\x1b")[2]
    view.close()
    assert all(len(line) <= width for line in drawn.splitlines()[1:])
    assert len(drawn.splitlines()) <= height


def drawn(workers: list[Where], room: int) -> list[list[str]]:
    out = Console(file=io.StringIO(), width=100)
    out.print(workers_table(workers, [f"node{rank}" for rank in range(len(workers))], room))
    return [line.split() for line in out.file.getvalue().splitlines()]


def test_every_worker_has_a_row_with_its_own_name():
    lines = drawn([where(-1), where(10)], room=16)
    assert lines[1:] == [["node0", "0", "–", "–", "0.00"], ["node1", "10", "0.500", "10.0", "0.01"]]


def test_many_workers_are_summed_up():
    workers = [where(10) for _ in range(64)]
    workers[7], workers[9] = where(3, loss=0.9), where(12, loss=0.1)
    lines = [" ".join(line) for line in drawn(workers, room=16)]
    assert len(lines) == 4
    assert lines[1].startswith("slowest: node7 3 0.900")
    assert lines[2].startswith("middle of 64 10 0.500")
    assert lines[3].startswith("fastest: node9 12 0.100")


def test_where_the_live_view_is_possible(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    assert LiveView.possible(Terminal())
    assert not LiveView.possible(io.StringIO())
    monkeypatch.setenv("TERM", "dumb")
    assert not LiveView.possible(Terminal())
