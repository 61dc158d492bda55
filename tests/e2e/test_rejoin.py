"""Workers that are killed and come back while a scenario runs, on a real network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from testbed.plan.make import plan, with_methods_checked
from testbed.results.directory import RunDirectory
from testbed.run.controller import Controller, Options
from testbed.run.live import PlainView
from testbed.run.resume import describe_cells
from testbed.scenario.load import load

pytestmark = pytest.mark.netem

STEPS = 150
SCENARIO = f"""
name: rejoin
workers: 4
network: {{topology: ring, link: {{latency: 2ms, rate: 100mbit}}}}
task: digits
training: {{steps: {STEPS}, lr: 0.05, momentum: 0.9, eval_every: 50}}
compute: {{step_time: 15ms}}
slow_motion: 1
on_failure: continue
methods: [dcd, allreduce]
sweep:
  network.events:
    - [{{at: step 10, kill: w2, for: 100ms}}]
    - [{{at: step 10, kill: [w1, w2]}}, {{at: 600ms, restart: w1}}, {{at: step 149, restart: w2}}]
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("rejoin")
    (folder / "rejoin.yaml").write_text(SCENARIO)
    made = with_methods_checked(plan(load(folder / "rejoin.yaml")))
    directory = RunDirectory.create("rejoin", folder / "run")
    directory.write_json("cells.json", describe_cells(made))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TESTBED_STATE", str(folder / "s"))
        Controller(made, directory, Options(calibrating=False), PlainView(Console(quiet=True))).run(made.cells)
    return {(cell.variant, cell.method): directory.cell(cell.id) for cell in made.cells}


def result(cell: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((cell / "result.json").read_text())
    return found


def test_a_worker_comes_back_with_its_neighbours_model(run):
    found = result(run[0, "dcd"])
    assert found["error"] is None
    (loss,), (back,) = found["lost"], found["rejoined"]
    assert (loss["worker"], back["worker"], back["from"]) == ("w2", "w2", "w1")
    assert loss["step"] <= back["left_step"] < back["step"] < STEPS
    assert back["left_at"] < back["at"]
    assert {loss["text"], back["text"]} <= set(found["warnings"])
    assert [row["what"] for row in found["events"]] == ["killed", "restarted", f"rejoined in step {back['step']}"]
    metrics = pd.read_parquet(run[0, "dcd"] / "metrics.parquet")
    losses = metrics[(metrics.metric == "train_loss") & (metrics.worker == 2)]
    assert losses.step.tolist() == list(range(back["step"] + 1, STEPS + 1))
    last = metrics[(metrics.step == STEPS) & (metrics.metric == "test_accuracy")].set_index("worker").value
    assert sorted(last.index) == [-1, 0, 1, 2, 3]
    assert last.min() > 0.9
    assert not (metrics.bytes_sent.diff()[losses.index[1:]] < 0).any()


def test_its_bytes_are_those_of_its_port(run):
    found = result(run[0, "dcd"])
    for worker in found["payload"].values():
        assert worker["port"] == pytest.approx(worker["trainer"], rel=0.03)
    trace = pd.read_parquet(run[0, "dcd"] / "trace.parquet")
    assert set(trace[trace.kind == "rejoin"].worker) == {1, 2, 3}
    model = trace[(trace.worker == 1) & (trace.kind == "send")].bytes_logical.max()
    assert model > 4 * trace[(trace.worker == 0) & (trace.kind == "send")].bytes_logical.max() * 0.9  # 8 bits, else


def test_one_comes_back_while_another_is_dead_and_that_one_too_late(run):
    found = result(run[1, "dcd"])
    assert found["error"] is None
    assert [(back["worker"], back["from"]) for back in found["rejoined"]] == [("w1", "w0")]
    assert [loss["worker"] for loss in found["lost"]].count("w2") == 2
    assert found["lost"][-1]["text"] == "w2 started again, but too late to rejoin"
    assert sorted(found["payload"]) == ["w0", "w1", "w3"]


def test_all_reduce_ends_as_before(run):
    found = result(run[0, "allreduce"])
    assert "w2 was killed by SIGKILL" in found["error"]
    assert found["hint"].endswith("allreduce cannot go on without a worker")


def test_nothing_is_left_of_it(run):
    for cell in run.values():
        allowed = {"logs", "counters.parquet", "metrics.parquet", "trace.parquet", "result.json", "verdict.json"}
        assert {path.name for path in cell.iterdir()} <= allowed
