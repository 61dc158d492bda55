"""One real run, many assertions: what is in its directory, that no network touches the maths, that bytes add up.

Four workers train with every synchronous method on three networks; `train_local` is the reference without a network.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
import yaml
from running import COMMAND, Place, assert_ran, losses

from testbed.scenario.load import load
from testbed.worker.trace import KINDS

pytestmark = [pytest.mark.netem, pytest.mark.slow, pytest.mark.timeout(900)]

SCENARIO = """
name: maths
workers: 4
network: {topology: ring, link: {latency: 1ms, rate: 200mbit}}
task: {data: digits, model: {mlp: {hidden: [256, 128]}}, batch: 16}
training: {steps: 12, lr: 0.05, momentum: 0.9, weight_decay: 0.001, eval_every: 5, target: {accuracy: 30%}}
methods:
  - allreduce
  - ddp
  - ring
  - dpsgd
  - naive: {compressor: {quantize: 8bit}}
  - dcd: {compressor: {quantize: 8bit}}
  - ecd: {compressor: {quantize: 8bit}}
  - deepsqueeze: {compressor: sign}
  - choco: {compressor: {topk: 10%}, gamma: 0.3}
  - powergossip
  - ef_sign
sweep:
  network.link:
    - {latency: 1ms, rate: 200mbit}
    - {latency: 8ms, rate: 50mbit}
    - {latency: 3ms, rate: 100mbit, jitter: 1ms}
seed: 3
"""
METHODS = [next(iter(m)) if isinstance(m, dict) else m for m in yaml.safe_load(SCENARIO)["methods"]]
NETWORKS = 3

# In a process of its own: workers are forked, which is safe only before others have started threads.
LOCAL = """
import json, sys
from pathlib import Path
from testbed.run.jobs import jobs
from testbed.plan.make import plan
from testbed.scenario.load import load
from testbed.worker.local import train_local
made = plan(load(sys.argv[1]))
found = {}
for cell in made.cells:
    if cell.variant == 0:
        job = jobs(made, cell, Path("/nowhere"), Path("/news"), None)[0]
        results = train_local(job.size, job.method, job.task, made.gossip, job.training, seed=cell.seed)
        rows = {result.rank: [row.value for row in result.metrics if row.metric == "train_loss"] for result in results}
        found[cell.method] = rows
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("run"))
    (place.folder / "maths.yaml").write_text(SCENARIO)
    done = place.run("up", "maths.yaml", "--out", "run", "--report")
    (place.folder / "output").write_text(done.stdout)
    assert_ran(done)
    yield place
    assert place.left_behind() == []


@pytest.fixture(scope="module")
def run(place: Place) -> Path:
    return place.folder / "run"


def cells(run: Path) -> list[dict]:
    return json.loads((run / "cells.json").read_text())


def result(run: Path, cell: dict) -> dict:
    return json.loads((run / "cells" / cell["id"] / "result.json").read_text())


def test_every_cell_was_run(run: Path) -> None:
    assert len(cells(run)) == NETWORKS * len(METHODS)
    assert [result(run, cell)["error"] for cell in cells(run)] == [None] * len(cells(run))


def test_the_directory_holds_everything_and_nothing_else(run: Path) -> None:
    assert sorted(path.name for path in run.iterdir()) == [
        "cells",
        "cells.json",
        "environment.json",
        "figures",
        "links.json",
        "nursery.log",
        "origin.json",
        "report.html",
        "scenario.yaml",
    ]
    for cell in cells(run):
        assert sorted(path.name for path in (run / "cells" / cell["id"]).iterdir()) == [
            "counters.parquet",
            "logs",
            "metrics.parquet",
            "result.json",
            "trace.parquet",
            "verdict.json",
        ]
    assert (run / "nursery.log").read_text() == ""


def test_the_scenario_is_kept_as_it_was_resolved(run: Path) -> None:
    kept = yaml.safe_load((run / "scenario.yaml").read_text())
    assert load(run / "scenario.yaml") == load(run.parent / "maths.yaml")
    assert kept["repeat"] == 1, "defaults are spelt out"


def test_links_were_asked_and_measured_at_each_network(run: Path) -> None:
    links = json.loads((run / "links.json").read_text())
    assert [entry["point"] for entry in links] == [0, 1, 2]
    asked = [(entry["probes"][0]["latency"], entry["probes"][0]["there"]["rate"]) for entry in links]
    assert [rate for _, rate in asked] == [200_000_000, 50_000_000, 100_000_000]
    assert [latency for latency, _ in asked] == pytest.approx([0.002, 0.016, 0.006], abs=1e-4)
    for entry in links:
        assert len(entry["probes"]) == 4
        for probe in entry["probes"]:
            assert probe["rtt"] >= 0.5 * probe["latency"]
            assert probe["there"]["goodput"] > 0


def test_the_environment_can_be_judged(run: Path) -> None:
    found = json.loads((run / "environment.json").read_text())
    assert found["box"] in ("host", "uml")
    assert found["runtime"] == "process"
    assert found["packages"]["torch"]
    assert found["network_settings"]["net.ipv4.tcp_congestion_control"]


@pytest.mark.parametrize("method", METHODS)
def test_the_network_never_touches_the_maths(run: Path, method: str) -> None:
    curves = [losses(run / "cells" / cell["id"]) for cell in cells(run) if cell["method"] == method]
    assert len(curves) == NETWORKS
    assert sorted(curves[0]) == [0, 1, 2, 3]
    assert all(len(curve) == 12 for curve in curves[0].values())
    assert curves[0] == curves[1] == curves[2]


def test_the_emulated_network_and_loopback_give_the_same_bits(place: Place, run: Path) -> None:
    done = subprocess.run(
        [COMMAND[0], "-c", LOCAL, "maths.yaml"], cwd=place.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    reference = json.loads(done.stdout)
    assert sorted(reference) == sorted(METHODS)
    for cell in cells(run)[: len(METHODS)]:
        expected = {int(rank): curve for rank, curve in reference[cell["method"]].items()}
        assert losses(run / "cells" / cell["id"]) == expected, cell["method"]


def test_different_methods_are_really_different(run: Path) -> None:
    """Or the tests above would show nothing. All-reduce, DDP and the ring are three ways to the same mean."""
    first = {cell["method"]: losses(run / "cells" / cell["id"])[0] for cell in cells(run)[: len(METHODS)]}
    assert first["allreduce"] == pytest.approx(first["ring"], rel=1e-3)
    curves = [tuple(curve) for method, curve in first.items() if method not in ("ddp", "ring")]
    assert len(set(curves)) == len(curves)


@pytest.mark.parametrize("method", METHODS)
def test_what_the_trainer_sent_is_what_the_port_carried(run: Path, method: str) -> None:
    for cell in (cell for cell in cells(run) if cell["method"] == method):
        payload = result(run, cell)["payload"]
        assert sorted(payload) == ["w0", "w1", "w2", "w3"]
        for worker, counts in payload.items():
            assert counts["trainer"] > 50_000, worker
            assert counts["port"] == pytest.approx(counts["trainer"], rel=0.03), (cell["id"], worker)


def test_the_trace_tells_the_same_bytes_and_no_overlap_of_standing_still(run: Path) -> None:
    for cell in cells(run):
        table = parquet.read_table(run / "cells" / cell["id"] / "trace.parquet").to_pandas()
        assert set(table.kind) <= set(KINDS)
        assert sorted(table.worker.unique()) == [0, 1, 2, 3]
        assert (table[table.kind == "compute"].groupby("worker").size() == 12).all()
        sent = table[table.kind == "send"].bytes_logical.sum()
        reduced = table[(table.kind == "wait") & (table.peer == -1)].bytes_wire.sum()
        if cell["method"] != "ddp":  # which sends by itself
            assert sent + reduced == pytest.approx(result(run, cell)["bytes_per_step"] * 12 * 4)


def test_numbers_of_each_cell_are_consistent(run: Path) -> None:
    for cell in cells(run):
        found = result(run, cell)
        assert found["steps"] == 12
        assert sum(found["parts_s"].values()) == pytest.approx(found["step_s"])
        assert 0 < found["floor_s"] < found["step_s"], (cell["id"], "nothing is faster than its messages")
        assert found["first_step_s"] + found["seconds"] <= found["cell_s"]
        assert found["verdict"] == json.loads((run / "cells" / cell["id"] / "verdict.json").read_text())
        assert 0 < found["final"]["test_accuracy"] <= 1
        assert found["target"]["value"] == 0.3
        counters = parquet.read_table(run / "cells" / cell["id"] / "counters.parquet").to_pandas()
        assert set(counters.kind) >= {"link", "port"}


def test_evaluations_are_at_their_steps_and_of_the_average_too(run: Path) -> None:
    for cell in cells(run)[: len(METHODS)]:
        metrics = parquet.read_table(run / "cells" / cell["id"] / "metrics.parquet").to_pandas()
        judged = metrics[metrics.metric == "test_accuracy"]
        assert sorted(judged.worker.unique()) == [-1, 0, 1, 2, 3]
        assert sorted(judged[judged.worker == 2].step) == [0, 5, 10, 12]


def test_show_runs_and_logs_read_it(place: Place, run: Path) -> None:
    shown = place.run("show", "run")
    assert shown.returncode == 0, shown.stderr
    assert "33 of 33 cells are done" in shown.stdout
    assert "which method is fastest here" in (place.folder / "output").read_text()
    listed = place.run("runs", ".")
    assert listed.stdout.split("\n")[1].split()[0] == "run"
    data = json.loads(place.run("show", run, "--json").stdout)
    assert len(data["comparison"]) == 33
    assert data["missing"] == []
    assert place.run("logs", "run", "w2").returncode == 0


def test_nothing_is_left_to_resume(place: Place, run: Path) -> None:
    before = (run / "links.json").read_text()
    done = place.run("up", "--resume", "run")
    assert_ran(done)
    assert "0 of 33 cells are missing" in done.stdout
    assert (run / "links.json").read_text() == before
