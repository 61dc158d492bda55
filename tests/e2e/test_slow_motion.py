"""A second of the scenario lasts several real ones: nothing that people see knows, and no loss changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from running import Place, assert_ran, losses, write
from worker.workers import bowl, ring

from testbed.methods import make
from testbed.worker.job import Compute, Training
from testbed.worker.memory import run_in_memory

METHODS = [
    "allreduce",
    "ring",
    "dpsgd",
    {"dcd": {"compressor": {"quantize": "8bit"}}},
    {"choco": {"compressor": "sign"}},
]
FACTOR = 4
SCENARIO = """
name: slow
workers: 4
network:
  topology: ring
  link: {latency: 10ms, rate: 20mbit}
  events: [{at: 0.2s, link: [w0, w1], latency: 12ms, for: 0.2s}]
task: digits
training: {steps: 8, lr: 0.05, eval_every: 4}
compute: {step_time: 50ms}
methods: [allreduce, ddp, {choco: {compressor: sign}}]
"""


@pytest.mark.parametrize("method", METHODS, ids=str)
@pytest.mark.parametrize("compute", ["real", "step_time"])
def test_no_loss_changes_in_memory(method, compute):
    training = Training(steps=6, momentum=0.9, compute=Compute(compute, 0.005))
    found = [run_in_memory(4, make(method), bowl, ring(4), training, slow_motion=factor) for factor in (1.0, 3.0)]
    for one, slow in zip(*found, strict=True):
        assert [(row.step, row.value) for row in one.metrics] == [(row.step, row.value) for row in slow.metrics]
        assert np.array_equal(one.x, slow.x)
        assert len(one.spans) == len(slow.spans)


def test_gradients_take_their_time_in_the_scenario():
    training = Training(steps=4, compute=Compute("emulated", 0.02))
    for result in run_in_memory(2, make("dpsgd"), bowl, ring(2), training, slow_motion=3.0):
        computed = result.spans[result.spans["kind"] == 1]
        lengths = (computed["end_ns"] - computed["start_ns"]) / 1e9
        assert (lengths >= 0.0199).all()
        assert np.median(lengths) < 0.06, "in real time it would be three times as long"
        assert result.seconds >= 4 * 0.0199


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("slow"))
    write(place.folder, SCENARIO, "slow.yaml")
    for factor in (1, FACTOR):
        assert_ran(place.run("up", "slow.yaml", "--slow-motion", str(factor), "--out", f"run{factor}"))
    yield place
    assert place.left_behind() == []


def results(run: Path) -> dict[str, dict]:
    return {path.parent.name: json.loads(path.read_text()) for path in run.glob("cells/*/result.json")}


@pytest.mark.netem
@pytest.mark.slow
@pytest.mark.timeout(300)
class TestOnARealNetwork:
    def test_no_loss_changes(self, place: Place) -> None:
        one, slow = (place.folder / f"run{factor}" for factor in (1, FACTOR))
        assert len(results(one)) == 3
        for cell in results(one):
            assert losses(one / "cells" / cell) == losses(slow / "cells" / cell)

    def test_links_are_those_of_the_scenario(self, place: Place) -> None:
        """A busy machine may be late by some milliseconds; in real time this network is slower by 60 of them."""
        for network in json.loads((place.folder / f"run{FACTOR}" / "links.json").read_text()):
            for probe in network["probes"]:
                assert probe["latency"] == pytest.approx(0.02, rel=0.01)
                assert probe["rtt"] == pytest.approx(0.02, rel=0.25)
                for way in (probe["there"], probe["back"]):
                    assert way["rate"] == 20_000_000
                    assert way["goodput"] is None or way["goodput"] == pytest.approx(0.9564 * 20e6, rel=0.1)

    def test_times_are_those_of_the_scenario(self, place: Place) -> None:
        for result in results(place.folder / f"run{FACTOR}").values():
            assert result["slow_motion"] == FACTOR
            assert result["parts_s"]["compute"] >= 0.0499
            assert result["seconds"] == pytest.approx(8 * result["step_s"], rel=0.2)
            assert result["cell_s"] > FACTOR * result["seconds"], "the cell's own time is real"
            due = [event["due"] for event in result["events"]]
            assert due == pytest.approx([0.2, 0.4])
            assert all(event["at"] - event["due"] < 0.1 for event in result["events"])
