"""Traces for Perfetto: a valid file whose spans, messages and counters are those of the Parquet files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import testbed
from testbed.bench.large_run import make
from testbed.cli import cli
from testbed.commands.trace import chosen, traced
from testbed.errors import ScenarioError
from testbed.report.perfetto import Selection, Spans, arrows, write
from testbed.results.run import Run
from testbed.worker.trace import CODES, KINDS, Trace

from .trace_events import check, of, read

RECORDED = Path(__file__).parents[1] / "recorded"


@pytest.fixture(scope="module")
def sweep() -> Run:
    return testbed.open_run(RECORDED / "sweep")


@pytest.fixture(scope="module")
def faults() -> Run:
    return testbed.open_run(RECORDED / "faults")


def events_of(run: Run, cell: str, folder: Path, selection: Selection | None = None) -> list[dict[str, Any]]:
    file = folder / "trace.json"
    write(run, [cell], file, selection)
    return check(read(file))


def totals(events: list[dict[str, Any]]) -> dict[Any, Any]:
    """(worker, kind) → spans, nanoseconds, bytes."""
    names = {event["pid"]: event["args"]["name"] for event in of(events, "M") if event["name"] == "process_name"}
    found: dict[Any, np.ndarray[Any, Any]] = {}
    for event in of(events, "X"):
        key = (names[event["pid"]], event["name"])
        one = [1, event["length"], event["args"].get("bytes_logical", 0), event["args"].get("bytes_wire", 0)]
        found[key] = found.get(key, 0) + np.array(one)
    return {key: tuple(value.tolist()) for key, value in found.items()}


def expected(trace: pd.DataFrame) -> dict[Any, Any]:
    found = {}
    for (worker, kind), rows in trace.groupby(["worker", "kind"], observed=True):
        length = int((rows["end_ns"] - rows["start_ns"]).sum())
        sums = (len(rows), length, int(rows["bytes_logical"].sum()), int(rows["bytes_wire"].sum()))
        found[f"w{worker}", str(kind)] = sums
    return found


def test_every_recorded_cell_is_a_valid_trace_with_the_same_time_and_bytes(
    sweep: Run, faults: Run, tmp_path: Path
) -> None:
    for run in (sweep, faults):
        assert traced(run)
        for cell in traced(run):
            assert totals(events_of(run, cell, tmp_path)) == expected(run.trace_of(cell)), cell


def test_an_arrow_for_every_message_to_a_worker_that_lived(sweep: Run, tmp_path: Path) -> None:
    cell = "v3-dpsgd-r0"
    trace = sweep.trace_of(cell)
    sends = trace[trace["kind"] == "send"]
    events = events_of(sweep, cell, tmp_path)
    assert len(of(events, "s")) == len(sends) == 4 * 2 * 30


def test_an_arrow_ends_where_its_message_was_waited_for(sweep: Run, tmp_path: Path) -> None:
    """w0's message of step 7 to w1, found in the Parquet file by hand."""
    cell = "v3-dpsgd-r0"
    trace = sweep.trace_of(cell)
    zero = trace["start_ns"].min()
    here = trace[(trace["step"] == 7) & trace["worker"].eq(0) & trace["kind"].eq("send") & trace["peer"].eq(1)]
    there = trace[(trace["step"] == 7) & trace["worker"].eq(1) & trace["kind"].eq("wait") & trace["peer"].eq(0)]
    events = events_of(sweep, cell, tmp_path)
    began = {event["at"]: event["id"] for event in of(events, "s")}
    ended = {event["id"]: event["at"] for event in of(events, "f")}
    flow = began[int(here["start_ns"].iloc[0] - zero)]
    assert ended[flow] == int(there["end_ns"].iloc[0] - zero) - 1


def test_lanes_are_named_for_what_is_in_them(sweep: Run, tmp_path: Path) -> None:
    events = events_of(sweep, "v0-choco-compressor-sign-r0", tmp_path)
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in of(events, "M") if e["name"] == "thread_name"}
    kinds: dict[str, set[str]] = {}
    for event in of(events, "X"):
        if event["pid"] == 1:
            kinds.setdefault(lanes[event["pid"], event["tid"]], set()).add(event["name"])
    assert set(kinds) == {"compute", "codec", "to w1", "from w1", "to w3", "from w3"}
    assert kinds["codec"] == {"compress", "decompress"}
    assert kinds["to w1"] == {"send"}
    assert kinds["from w3"] == {"wait", "receive"}


def test_rates_of_links_add_up_to_the_bytes_they_carried(sweep: Run, tmp_path: Path) -> None:
    cell = "v3-allreduce-r0"
    counters = pd.read_parquet(sweep.directory.cell(cell) / "counters.parquet")
    link = counters[(counters["kind"] == "link") & (counters["name"] == "w0>w1") & (counters["counter"] == "bytes")]
    trace = sweep.trace_of(cell)
    inside = (link["time_s"] * 1e9 >= trace["start_ns"].min()) & (link["time_s"] * 1e9 <= trace["end_ns"].max())
    seconds = link["time_s"].diff().shift(-1)[inside].dropna()
    carried = link["value"].diff().shift(-1)[inside].dropna().sum()
    events = events_of(sweep, cell, tmp_path)
    rates = [float(e["args"]["Mbit/s"]) for e in of(events, "C") if e["name"] == "w0>w1 rate"]
    assert len(rates) == len(seconds) > 5
    assert sum(rate * 1e6 / 8 * s for rate, s in zip(rates, seconds, strict=True)) == pytest.approx(carried)


def test_what_happened_to_links_and_workers_is_marked(faults: Run, tmp_path: Path) -> None:
    events = events_of(faults, "v0-dpsgd-r0", tmp_path)
    marks = {event["name"] for event in of(events, "i")}
    assert {"w3: killed", "w0-w1: rate=5mbit", "w2: 3 times slower"} <= marks


def test_only_the_chosen_steps_and_workers(sweep: Run, tmp_path: Path) -> None:
    cell = "v0-dpsgd-r0"
    events = events_of(sweep, cell, tmp_path, Selection.parse("10:12", "w0,w1"))
    trace = sweep.trace_of(cell)
    wanted = trace[trace["step"].isin([10, 11]) & trace["worker"].isin([0, 1])]
    assert totals(events) == expected(wanted)
    assert len(of(events, "s")) == 4  # between the two, both ways, in two steps
    first = min(event["at"] for event in of(events, "X"))
    assert first == wanted["start_ns"].min() - trace["start_ns"].min()  # as in a file of the whole cell


def test_several_cells_begin_together_and_share_nothing(sweep: Run, tmp_path: Path) -> None:
    cells = ["v0-allreduce-r0", "v0-dpsgd-r0"]
    file = tmp_path / "both.json.gz"
    write(sweep, cells, file)
    events = check(read(file))
    names = [event["args"]["name"] for event in of(events, "M") if event["name"] == "process_name"]
    assert [name for name in names if name.endswith("w0")] == [f"{cell} w0" for cell in cells]
    assert len(set(names)) == len(names) == 10
    assert sorted(event["at"] for event in of(events, "X"))[:2] == [0, 0]
    assert file.read_bytes()[:2] == b"\x1f\x8b"


def spans(*rows: tuple[int, str, int, int, int, int]) -> Spans:
    """Of (worker, kind, step, peer, start, end)."""
    worker, kind, step, peer, start, end = (np.array(column) for column in zip(*rows, strict=True))
    codes = np.array([CODES[name] for name in kind.tolist()])
    zeros = np.zeros(len(rows), dtype=np.int64)
    return Spans(worker, codes, step, peer, start, end, zeros, zeros, 0)


def test_messages_that_overlap_get_lanes_of_their_own() -> None:
    made = spans((0, "send", 0, 1, 0, 10), (0, "send", 0, 1, 5, 15), (0, "send", 0, 1, 6, 8), (0, "send", 0, 1, 10, 12))
    # The third lies within the first; the fourth begins when the first is over.
    assert [made.lanes[place][2] for place in made.place.tolist()] == [0, 1, 0, 0]


def test_of_two_spans_that_begin_together_the_longer_comes_first(tmp_path: Path) -> None:
    run = make(tmp_path / "run", workers=4, steps=10, methods=1)
    trace = Trace(0)
    trace.add(CODES["compute"], -1, 1000, 2000)
    trace.add(CODES["mix"], -1, 1000, 5000)
    trace.write(run.cell("v0-allreduce-r0") / "trace.parquet")
    events = of(events_of(Run(run), "v0-allreduce-r0", tmp_path), "X")
    assert [event["name"] for event in events] == ["mix", "compute"]


def test_the_nth_message_of_a_step_belongs_to_the_nth_wait() -> None:
    made = spans(
        (0, "send", 3, 1, 0, 4),
        (0, "send", 3, 1, 10, 14),
        (0, "send", 4, 1, 20, 24),
        (1, "wait", 3, 0, 1, 5),
        (1, "wait", 3, 0, 11, 15),
        (1, "wait", 5, 0, 30, 31),  # of a message that nobody recorded
        (1, "wait", 3, -1, 2, 3),  # for all
    )
    sent, came = arrows(made)
    assert list(zip(sent.tolist(), came.tolist(), strict=True)) == [(0, 3), (1, 4)]


def test_an_arrow_ends_where_the_message_came_if_that_is_known() -> None:
    made = spans((0, "send", 0, 1, 0, 4), (1, "receive", 0, 0, 0, 3), (1, "wait", 0, 0, 6, 6))
    assert [rows.tolist() for rows in arrows(made)] == [[0], [1]]


def test_a_made_up_run_is_valid_too(tmp_path: Path) -> None:
    run = Run(make(tmp_path / "run", workers=8, steps=40, methods=2))
    for cell in ("v0-allreduce-r0", "v0-dpsgd-r0"):
        assert totals(events_of(run, cell, tmp_path)) == expected(run.trace_of(cell))


@pytest.mark.parametrize("text", ["5:5", "a:b", "-3:4", "9:2"])
def test_steps_that_are_no_range(text: str) -> None:
    with pytest.raises(ScenarioError, match="no range"):
        Selection.parse(text, None)


def test_selections() -> None:
    assert Selection.parse("7", None) == Selection(7, 8)
    assert Selection.parse("7:", None) == Selection(7, None)
    assert Selection.parse(None, "w0, w12") == Selection(0, None, frozenset({0, 12}))


def test_which_cell(sweep: Run) -> None:
    assert chosen(sweep, ["v0-d*", "v0-dpsgd-r0"]) == ["v0-dpsgd-r0", "v0-dcd-compressor-quantize-8bit-r0"]
    with pytest.raises(ScenarioError, match="which cell"):
        chosen(sweep, [])
    with pytest.raises(ScenarioError, match="did you mean v0-dpsgd-r0"):
        chosen(sweep, ["v0-dpsg-r0"])


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "out.json.gz"
    run = str(RECORDED / "sweep")
    words = ["trace", run, "--cell", "v1-dcd*", "--perfetto", str(file), "--steps", "3:5"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0
    assert "ui.perfetto.dev" in done.output
    steps = Counter(event["args"]["step"] for event in of(check(read(file)), "X"))
    assert set(steps) == {3, 4}
    listed = CliRunner().invoke(cli, ["trace", run], catch_exceptions=False)
    assert "v3-powergossip-r0" in listed.output


def test_all_kinds_have_a_category() -> None:
    from testbed.report.perfetto import CATEGORIES

    assert set(CATEGORIES) == set(KINDS)
    assert {"send", "wait", "receive", "fault"} == {kind for kind, what in CATEGORIES.items() if what == "network"}
