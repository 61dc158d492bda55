"""Uncertain things look uncertain: suspect, invalid, failed, not reached."""

from dataclasses import asdict

import pytest
from matplotlib.colors import to_hex
from recorded_runs import FAULTS, SWEEP, change, copy

import testbed
from testbed.analysis import (
    epoch_time_vs_bandwidth,
    loss_vs_time,
    method_table,
    network_map,
    outcome,
    style,
    time_breakdown,
    winner_map,
)
from testbed.analysis.reading import LackingError
from testbed.plan.make import plan
from testbed.results.run import open_run

CELL = "v0-dpsgd-r0"


def hollow(made):
    """Colours of lines with markers that show the paper."""
    lines = [line for axes in made.axes for line in axes.get_lines() if len(line.get_xdata())]
    faces = [
        (line, to_hex(line.get_markerfacecolor())) for line in lines if line.get_marker() not in ("None", None, "")
    ]
    return {to_hex(line.get_markeredgecolor()) for line, face in faces if face == style.PAPER}


def remark(made):
    return made._supxlabel.get_text() if made._supxlabel else ""


@pytest.fixture
def path(tmp_path):
    return copy(SWEEP, tmp_path)


def test_suspect_cells_are_hollow(path):
    assert hollow(epoch_time_vs_bandwidth.draw(open_run(path))) == set()
    change(path, CELL, verdict={"grade": "suspect", "reasons": ["busy"]})
    run = open_run(path)
    for draw in (epoch_time_vs_bandwidth.draw, loss_vs_time.draw):
        made = draw(run)
        assert hollow(made) == {style.FAMILIES["dpsgd"]}
        assert "suspect" in remark(made)
    bars = [patch for axes in time_breakdown.draw(run).axes for patch in axes.patches if patch.get_hatch()]
    assert len(bars) == 1


def test_invalid_cells_are_left_out_and_counted(path):
    change(path, CELL, verdict={"grade": "invalid", "reasons": ["far off"]})
    made = epoch_time_vs_bandwidth.draw(open_run(path))
    assert "left out: 1 invalid cell" in remark(made)
    first = made.axes[0]  # latency 5 ms: dpsgd has one point instead of two
    points = [line for line in first.get_lines() if line.get_color() == style.FAMILIES["dpsgd"]]
    assert max(len(line.get_xdata()) for line in points) == 1


def test_failed_cells_are_counted():
    assert "left out: 2 failed cells" in remark(loss_vs_time.draw(open_run(FAULTS)))


def test_what_diverged_is_told_instead_of_an_accuracy_and_a_time(path):
    for cell in (path / "cells").glob("*-dpsgd-r*"):
        diverge(path, cell.name)
    run = open_run(path)
    rows = method_table.table(run).set_index(["network", "method"])
    here = rows.loc[("latency 5 ms · rate 100 Mbit/s", "dpsgd")]
    assert [here[name] for name in ("accuracy", "loss", "s to 85%")] == ["diverged at step 86"] * 3
    assert here["doubt"] == "1 diverged"
    assert "left out: 4 diverged cells" in remark(loss_vs_time.draw(run))
    for cell in (path / "cells").iterdir():
        diverge(path, cell.name)
    with pytest.raises(LackingError, match="every training diverged"):
        loss_vs_time.draw(open_run(path))


def test_bits_at_which_a_method_diverges_are_named(path):
    run = open_run(path)
    rows = run.results[run.results["family"].isin(("allreduce", "dpsgd"))].copy()
    rows["bits"], rows["line"] = [8.0 if family == "dpsgd" else 2.0 for family in rows["family"]], "dcd"
    rows.loc[rows["bits"] == 2, "test_accuracy"] = float("nan")
    assert "diverged: dcd at 2" in remark(outcome.draw(run, rows, "bits", "bits"))
    rows["seed"] = range(len(rows))
    rows.loc[(rows["bits"] == 8) & (rows["point"] == 0), "test_accuracy"] = float("nan")
    assert "diverged: dcd at 2 (4 of 4), dcd at 8 (1 of 4)" in remark(outcome.draw(run, rows, "bits", "bits"))


def diverge(path, cell):
    change(path, cell, error="w1: NaN", hint="warm up", diverged={"worker": "w1", "step": 86}, final={}, target=None)


def test_no_valid_cell_no_figure(path):
    for file in (path / "cells").iterdir():
        change(path, file.name, verdict={"grade": "invalid", "reasons": ["far off"]})
    with pytest.raises(LackingError, match="no cell is valid"):
        loss_vs_time.draw(open_run(path))


def test_a_target_that_was_not_reached_is_no_number(path):
    target = open_run(path).raw[CELL].target
    change(path, CELL, target={**asdict(target), "seconds": None, "step": None})
    rows = method_table.table(open_run(path)).set_index(["network", "method"])
    here = rows.loc[("latency 5 ms · rate 100 Mbit/s", "dpsgd")]
    assert here["s to 85%"] == "not reached"
    assert here["× all-reduce"] is None or here["× all-reduce"] != here["× all-reduce"]


def test_winner():
    lines = open_run(SWEEP).compare()
    here = lines[lines["setting"] == lines["setting"].iloc[0]].copy()
    here["step_s"] = [1.0, 0.5, 0.25, 0.2, 0.1]
    won = winner_map.winner(here, "step_s")
    assert (won.method, won.over_stock, won.over_best, won.suspect) == ("powergossip", 10.0, 10.0, False)
    here.loc[here["method"] == "dpsgd", "family"] = "ring"
    here.loc[here["method"] == "dpsgd", "verdict"] = "suspect"
    won = winner_map.winner(here, "step_s")
    assert (won.over_stock, won.over_best, won.suspect) == (10.0, 5.0, True)
    without = winner_map.winner(here[here["family"] != "allreduce"], "step_s")
    assert (without.over_stock, without.over_best) == (None, 5.0)
    assert winner_map.winner(here.assign(step_s=float("nan")), "step_s") is None
    now_and_then = here.assign(diverged=[0, 0, 0, 0, 1])
    assert winner_map.winner(now_and_then, "step_s").method != "powergossip"


def test_parts_of_a_step_add_up():
    run = open_run(SWEEP)
    parts = time_breakdown.shares(run, run.results)
    for (setting, method), some in parts.groupby(["setting", "method"]):
        cell = run.results[(run.results["setting"] == setting) & (run.results["method"] == method)].iloc[0]
        assert some["seconds"].sum() >= cell["step_s"] * 0.999
        assert some.set_index("kind")["seconds"]["wait"] == pytest.approx(cell["wait_s"])


def test_routers_of_nobody_are_placed_between_workers():
    scenario = testbed.load({"workers": 6, "network": {"topology": "star"}, "methods": ["dpsgd"]})
    places = network_map._places(plan(scenario).points[0].network)
    assert set(places) == {"s0", "w0", "w1", "w2", "w3", "w4", "w5"}
    assert max(map(abs, places["s0"])) < 0.1
    assert min(max(map(abs, place)) for name, place in places.items() if name != "s0") > 0.5
