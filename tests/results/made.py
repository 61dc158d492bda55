"""A run directory made by hand: one cell done, one failed, one missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from testbed.network.calibrate import Calibration
from testbed.network.probes import Probe, Way
from testbed.results import comparison
from testbed.results.cell import CellResult, PlannedCell
from testbed.results.directory import RunDirectory, environment
from testbed.verdict import Verdict

PLANNED = {one.name for one in fields(PlannedCell)}
CELLS = ("v0-allreduce-r0", "v0-dpsgd-r0", "v0-choco-r0")


def cell_result(found: Mapping[str, Any]) -> CellResult:
    """What is said of a cell and of its result in one mapping."""
    cell = {"id": "some", "method": "dpsgd", **{key: value for key, value in found.items() if key in PLANNED}}
    return CellResult.of(PlannedCell(**cell), {key: value for key, value in found.items() if key not in PLANNED})


def compare(results: Sequence[Mapping[str, Any]], **options: Any) -> list[comparison.Line]:
    """Of results as such mappings."""
    return comparison.compare([cell_result(found) for found in results], **options)


def done(**values: Any) -> dict[str, Any]:
    return {
        "error": None,
        "step_s": 0.1,
        "parts_s": {"compute": 0.06, "codec": 0.0, "wait": 0.03, "mix": 0.0, "other": 0.01},
        "floor_s": 0.02,
        "bytes_per_step": 1000.0,
        "final": {"test_accuracy": 0.912, "test_loss": 0.3},
        "target": None,
        "warnings": ["momentum is high"],
        "shortcomings": ["memory could not be limited"],
        "verdict": {"grade": "suspect", "reasons": ["the processors were only 3% idle"]},
        **values,
    }


def failed() -> dict[str, Any]:
    error = "w1 was killed by SIGKILL [enforce fail]"
    return {
        "error": error,
        "hint": "dmesg",
        "warnings": [],
        "shortcomings": [],
        "verdict": {"grade": "invalid", "reasons": [error]},
    }


def diverged() -> dict[str, Any]:
    error = "w1: head holds NaN or Inf at step 86 (loss nan): the training has diverged"
    found = {**failed(), "error": error, "hint": "warm up", "diverged": {"worker": "w1", "step": 86}}
    return {**found, "verdict": {"grade": "faithful", "reasons": []}}


def calibration() -> Calibration:
    there, back = Way(100_000_000, 0.0, goodput=95e6), Way(100_000_000, 0.01, lost=0.012, packets=1500)
    probe = Probe("w0", "w1", ("w0-w1",), 0.01, 0.0, there, back, rtt=0.0101, uses=frozenset({"w0-w1"}))
    return Calibration((probe,), Verdict("faithful"), unmeasured=0)


def make_run(folder: Path, name: str = "toy-1") -> RunDirectory:
    run = RunDirectory.create("toy", folder / name)
    run.write_text("scenario.yaml", "name: toy\n")
    cells = [
        {"id": cell, "method": cell.split("-")[1], "options": {}, "setting": "", "point_label": ""} for cell in CELLS
    ]
    run.write_json("cells.json", cells)
    first, second, _ = CELLS
    for cell, words in ((first, {"w0": "", "w10": "late\n", "w2": "early\n"}), (second, {"w0": "oh no\n"})):
        (run.cell(cell) / "logs").mkdir(parents=True)
        for worker, text in words.items():
            (run.cell(cell) / "logs" / f"{worker}.log").write_text(text)
    run.write_json(f"cells/{first}/result.json", done())
    run.write_json(f"cells/{second}/result.json", failed())
    link = {"point": 0, "label": "", "mtu": 1500, **asdict(calibration())}
    run.write_json("links.json", [{**link, "verdict": {"grade": "invalid", "reasons": ["old"]}}, link])
    box = {"box": "uml", "box_reason": "no netem", "box_kernel": "6.1", "runtime": "process"}
    run.write_json("environment.json", {**environment(box), "time": "2024-05-06T07:08:09+00:00"})
    return run
