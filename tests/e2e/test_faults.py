"""Faults while a scenario runs, on a real network: one run, one cell for each kind of fault.

The reference cell meets nothing; every other one is the same training with something happening to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from testbed.plan.make import plan, with_methods_checked
from testbed.plan.model import Cell, Plan
from testbed.results.directory import RunDirectory
from testbed.run.controller import Controller, Options
from testbed.run.resume import describe_cells
from testbed.scenario.load import load

pytestmark = pytest.mark.netem

STEPS = 40
SCENARIO = f"""
name: faults
workers: 4
network: {{topology: ring, link: {{latency: 2ms, rate: 100mbit}}}}
task: digits
training: {{steps: {STEPS}, lr: 0.05, eval_every: 20}}
compute: {{step_time: 10ms}}
slow_motion: 1
patience: 4s
methods: [dpsgd, allreduce]
sweep:
  on_failure: [stop, continue]
  network.events:
    - []
    - [{{at: step 10, kill: w2}}]
    - [{{at: step 10, freeze: w1, for: 60s}}]
    - [{{at: step 10, slow: w1, factor: 6}}]
    - - {{at: 100ms, partition: [[w0, w1], [w2, w3]], for: 200ms}}
      - {{at: step 20, down: [w0, w3], for: 300ms}}
      - {{at: 0s, link: [w1, w2], trace: narrow.csv}}
      - {{at: step 25, link: [w2, w3], latency: 10ms, rate: 10mbit}}
      - {{at: step 15, freeze: w0, for: 300ms}}
"""
KINDS = ("nothing", "kill", "freeze", "slow", "cut")
CELLS = (  # in this order: whatever happens in one, the next ones run
    ("kill", "stop", "dpsgd"),
    ("nothing", "stop", "dpsgd"),
    ("freeze", "stop", "dpsgd"),
    ("cut", "stop", "dpsgd"),
    ("freeze", "continue", "dpsgd"),
    ("kill", "continue", "dpsgd"),
    ("kill", "continue", "allreduce"),
    ("slow", "stop", "dpsgd"),
)


@dataclass
class Notes:
    """A view that looks at the network after every cell."""

    links: list[Any] = field(default_factory=list)
    controller: Controller | None = None

    def network(self, *_: Any) -> None: ...
    def calibrated(self, *_: Any) -> None: ...
    def begins(self, *_: Any) -> None: ...
    def repeats(self, *_: Any) -> None: ...
    def progress(self, *_: Any) -> None: ...

    def ended(self, *_: Any) -> None:
        assert self.controller is not None
        self.links.append(self.controller.up.handle.call("status"))


@dataclass(frozen=True)
class Run:
    """What all cells gave."""

    plan: Plan
    directory: RunDirectory
    cells: dict[tuple[str, str, str], Cell]
    notes: Notes

    def result(self, *key: str) -> dict[str, Any]:
        found: dict[str, Any] = self.directory.read_json(f"cells/{self.cells[key].id}/result.json")
        return found

    def table(self, name: str, *key: str) -> pd.DataFrame:
        return pd.read_parquet(self.directory.cell(self.cells[key].id) / f"{name}.parquet")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    place = tmp_path_factory.mktemp("f")
    (place / "narrow.csv").write_text("time,rate,latency\n0s,50mbit,\n150ms,20mbit,4ms\n300ms,100mbit,2ms\n")
    (place / "faults.yaml").write_text(SCENARIO)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", str(place / "s"))
        made = with_methods_checked(plan(load(place / "faults.yaml")))
        yield _run(made, RunDirectory.create("faults", place / "run"))


def _run(made: Plan, directory: RunDirectory) -> Run:
    cells = {_key(made, cell): cell for cell in made.cells}
    directory.write_json("cells.json", describe_cells(made))
    notes = Notes()
    notes.controller = Controller(made, directory, Options(calibrating=False), notes)
    notes.controller.run([cells[key] for key in CELLS])
    return Run(made, directory, cells, notes)


def _key(made: Plan, cell: Cell) -> tuple[str, str, str]:
    kinds = [variant.network.events for variant in made.variants if variant.on_failure == "stop"]
    variant = made.variants[cell.variant]
    return KINDS[kinds.index(variant.network.events)], variant.on_failure, cell.method


def test_all_cells_share_one_network_and_leave_it_as_it_was(run):
    assert len(run.plan.points) == 1
    planned = {link.name: [asdict(link.ab), asdict(link.ba)] for link in run.plan.network.links}
    assert len(run.notes.links) == len(CELLS)
    for status in run.notes.links:
        assert status["links"] == planned
        assert status["partition"] == {}
        assert status["changes_left"] == 0


def test_a_killed_worker_ends_the_cell_and_the_next_one_runs(run):
    failed, after = run.result("kill", "stop", "dpsgd"), run.result("nothing", "stop", "dpsgd")
    assert re.fullmatch(r"w2 was killed by SIGKILL in step \d+", failed["error"])
    assert "at step 10, w2 killed" in failed["hint"]
    assert failed["verdict"]["grade"] == "invalid"
    assert [(row["subject"], row["what"], row["due"]) for row in failed["events"]] == [("w2", "killed", "step 10")]
    assert after["error"] is None
    assert after["steps"] == STEPS
    assert after["events"] == []
    counters = run.table("counters", "kill", "stop", "dpsgd")
    assert counters[counters.kind == "fault"].name.tolist() == ["w2"]


def test_the_others_go_on_without_a_worker_that_was_killed(run):
    result = run.result("kill", "continue", "dpsgd")
    assert result["error"] is None
    (loss,) = result["lost"]
    assert (loss["worker"], loss["why"]) == ("w2", "was killed")
    assert 9 <= loss["step"] < STEPS  # the first worker began step 10; it may have been a little behind
    assert (
        f"w2 was lost in step {loss['step']} (it was killed); its neighbours went on without it" in result["warnings"]
    )
    metrics = run.table("metrics", "kill", "continue", "dpsgd")
    assert set(metrics[metrics.metric == "train_loss"].worker) == {0, 1, 3}
    last = metrics[metrics.step == STEPS]
    assert set(last[last.metric == "test_accuracy"].worker) == {-1, 0, 1, 3}
    quiet = run.table("metrics", "nothing", "stop", "dpsgd")
    until = loss["step"]
    assert _losses(metrics, until) == {key: value for key, value in _losses(quiet, until).items() if key[0] != 2}
    assert _losses(metrics) != {key: value for key, value in _losses(quiet).items() if key[0] != 2}
    assert result["final"]["test_accuracy"] > 0.5


def test_all_reduce_cannot_go_on(run):
    result = run.result("kill", "continue", "allreduce")
    assert re.fullmatch(r"w2 was killed by SIGKILL in step \d+", result["error"])
    assert result["hint"].endswith("allreduce cannot go on without a worker")


def test_a_frozen_worker_is_named_when_patience_ends(run):
    result = run.result("freeze", "stop", "dpsgd")
    assert re.match(r"w[02]: nothing from w1 in step \d+ after \d\.\d s \(message timeout 4 s\)", result["error"])
    assert "w1 frozen for 60s" in result["hint"]
    trace = run.table("trace", "freeze", "stop", "dpsgd")
    assert set(trace[trace.kind == "fault"].worker) >= {0, 2}  # its neighbours waited in vain, and that is on record


def test_where_the_others_go_on_a_worker_frozen_for_too_long_is_lost(run):
    result = run.result("freeze", "continue", "dpsgd")
    assert result["error"] is None
    (loss,) = result["lost"]
    assert loss["worker"] == "w1"
    assert "too long for the others" in loss["text"]
    assert result["steps"] == STEPS


def test_a_straggler_makes_the_others_wait(run):
    trace = run.table("trace", "slow", "stop", "dpsgd")
    trace["seconds"] = (trace.end_ns - trace.start_ns) / 1e9
    late = trace[trace.step >= STEPS // 2]
    of_w1 = late[(late.worker == 1) & (late.kind == "compute")].seconds
    assert len(of_w1) == STEPS // 2
    assert of_w1.min() >= 0.0599  # six times 10 ms
    waits = late[late.kind == "wait"].groupby(["worker", "peer"]).seconds.sum()
    for neighbour, other in ((0, 3), (2, 3)):
        assert waits[neighbour, 1] > 2 * waits[neighbour, other]
    assert _losses(run.table("metrics", "slow", "stop", "dpsgd")) == _losses(
        run.table("metrics", "nothing", "stop", "dpsgd")
    )


def test_the_network_never_touches_the_maths(run):
    """A partition, a dead link, a trace, a slow link, a short freeze: the same losses, bit for bit."""
    result = run.result("cut", "stop", "dpsgd")
    assert result["error"] is None
    told = {f"{row['subject']} {row['what']}" for row in result["events"]}
    assert told >= {
        "network healed",
        "w0-w3 down",
        "w0-w3 up",
        "w1-w2 rate=50mbit",
        "w1-w2 latency=4ms rate=20mbit",
        "w1-w2 latency=2ms rate=100mbit",
        "w2-w3 latency=10ms rate=10mbit",
        "w0 frozen for 300ms",
        "w0 goes on",
    }
    assert all(row["problem"] == "" for row in result["events"])
    cut = run.table("metrics", "cut", "stop", "dpsgd")
    assert _losses(cut) == _losses(run.table("metrics", "nothing", "stop", "dpsgd"))
    assert result["seconds"] > run.result("nothing", "stop", "dpsgd")["seconds"]


def _losses(metrics: pd.DataFrame, until: int = STEPS) -> dict[tuple[int, int], float]:
    rows = metrics[(metrics.metric == "train_loss") & (metrics.step <= until)]
    return {(row.worker, row.step): row.value for row in rows.itertuples()}


def test_the_run_directory_is_tidy(run):
    for cell in run.cells.values():
        directory: Path = run.directory.cell(cell.id)
        if directory.exists():
            names = {path.name for path in directory.iterdir()}
            assert names <= {
                "logs",
                "counters.parquet",
                "metrics.parquet",
                "trace.parquet",
                "result.json",
                "verdict.json",
            }
