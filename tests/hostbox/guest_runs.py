"""Whole runs in a kernel that has netem and control groups of version 2. `test_guest.py` boots it and runs these."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import running
from running import CGROUPS, Place, assert_ran, losses, wait_for, workers_of, write

QUICKSTART = Path(__file__).parents[2] / "scenarios" / "quickstart.yaml"
STEPS = 6
FAULTS = """
name: faults
workers: 4
network: {topology: ring, link: {latency: 2ms, rate: 100mbit}}
task: digits
training: {steps: 12, lr: 0.05, eval_every: 12}
compute: {step_time: 10ms}
slow_motion: 1
on_failure: continue
methods: [dpsgd]
sweep:
  network.events:
    - []
    - - {at: step 2, partition: [[w0, w1], [w2, w3]], for: 200ms}
      - {at: step 5, down: [w0, w3], for: 200ms}
      - {at: step 8, freeze: w1, for: 200ms}
    - [{at: step 5, kill: w2}]
"""
LIMITED = "{count: 3, memory: 1gb, cpus: 0.9}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(running, "LIMIT", 600)  # the guest is slower than the machine
    place = Place(tmp_path)
    yield place
    for pid in place.processes():  # only where a test failed
        os.kill(pid, signal.SIGKILL)


def groups() -> list[Path]:
    return [path for path in CGROUPS.rglob("testbed-*") if path.is_dir()]


def finished(place: Place, file: Path, *words: str) -> Path:
    """The directory of a run on links of this kernel. Links are measured elsewhere: here that would take most of it."""
    options = ["--out", "run", "--no-calibrate", "--slow-motion", "1", *words]  # one processor would need a lot
    done = place.run("up", file, *options)
    assert_ran(done)
    run = place.folder / "run"
    environment = json.loads((run / "environment.json").read_text())
    assert (environment["box"], environment["box_kernel"]) == ("host", os.uname().release)
    assert place.left_behind() == []
    return run


def curves(run: Path) -> dict[str, dict[int, list[float]]]:
    """By cell and worker, the loss of every step."""
    return {cell: losses(run / "cells" / cell) for cell in methods(run)}


def methods(run: Path) -> dict[str, str]:
    """By cell."""
    return {cell["id"]: cell["method"] for cell in json.loads((run / "cells.json").read_text())}


def test_the_quickstart(place: Place) -> None:
    """Its losses go to `test_guest.py`, which compares them with those of training without a network."""
    run = finished(place, QUICKSTART, "--set", f"training.steps={STEPS}")
    found = {methods(run)[cell]: curve for cell, curve in curves(run).items()}
    assert len(found) == 5
    assert all(len(curve) == STEPS for workers in found.values() for curve in workers.values())
    (Path(os.environ["OUT"]) / "losses.json").write_text(json.dumps(found))
    shutil.copy(run / "scenario.yaml", os.environ["OUT"])


def test_faults(place: Place) -> None:
    """A partition, a dead link and a freeze cost time and change nothing else; the others go on without the dead."""
    run = finished(place, write(place.folder, FAULTS))
    quiet, cut, killed = (f"v{number}-dpsgd-r0" for number in range(3))
    results = {cell: json.loads((run / "cells" / cell / "result.json").read_text()) for cell in (quiet, cut, killed)}
    assert [one["error"] for one in results.values()] == [None] * 3
    told = {f"{row['subject']} {row['what']}" for row in results[cut]["events"]}
    assert told >= {"network healed", "w0-w3 down", "w0-w3 up", "w1 frozen for 200ms", "w1 goes on"}
    assert all(row["problem"] == "" for row in results[cut]["events"])
    (loss,) = results[killed]["lost"]
    assert (loss["worker"], loss["why"]) == ("w2", "was killed")
    found = curves(run)
    assert found[cut] == found[quiet]
    assert set(found[killed]) == {0, 1, 3}
    assert all(len(curve) == 12 for curve in found[killed].values())
    assert all(curve[:3] == found[quiet][rank][:3] for rank, curve in found[killed].items())


def test_a_killed_controller_leaves_nothing(place: Place) -> None:
    """Network and workers end by themselves; `down --all` removes what is left of files and control groups."""
    file = write(place.folder, workers=LIMITED, compute="{step_time: 1s}")
    process = place.start("up", file, "--out", "run", "--no-calibrate")
    wait_for(lambda: len(workers_of(process)) == 3 and groups(), process)
    process.kill()
    process.communicate()
    assert place.run("down", "--all").returncode == 0
    assert place.left_behind() == []
    assert groups() == []


def test_a_killed_keeper_ends_the_run_and_leaves_nothing(place: Place) -> None:
    file = write(place.folder, workers=LIMITED, compute="{step_time: 1s}")
    process = place.start("up", file, "--out", "run", "--no-calibrate")
    wait_for(lambda: len(workers_of(process)) == 3, process)
    (daemon,) = [pid for pid, words in place.processes().items() if "testbed.network.daemon" in words]
    os.kill(daemon, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode in (4, 5), errors
    assert "Traceback" not in errors
    assert place.run("down", "--all").returncode == 0
    assert place.left_behind() == []
    assert groups() == []
