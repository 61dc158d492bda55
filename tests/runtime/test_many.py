"""Many workers on one machine: they start, they train, and each takes little memory of its own."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from running import Place, assert_ran, losses, write

pytestmark = [pytest.mark.netem, pytest.mark.slow]

WORKERS = 32


def test_thirty_two_workers_on_a_ring(tmp_path: Path) -> None:
    place = Place(tmp_path)
    file = write(
        tmp_path,
        workers=str(WORKERS),
        methods="[dpsgd]",
        training="{steps: 20, lr: 0.05, eval_every: 10}",
        network="{topology: ring, link: {latency: 5ms, rate: 50mbit}}",
    )
    done = place.run("up", file, "--out", "run", "--no-calibrate")
    assert_ran(done)
    cell = tmp_path / "run/cells/v0-dpsgd-r0"
    found = json.loads((cell / "result.json").read_text())
    assert found["error"] is None
    assert 0 < found["memory_per_worker"] <= 150e6
    assert found["first_step_s"] > 0
    curves = losses(cell)
    assert sorted(curves) == list(range(WORKERS))
    assert all(len(curve) == 20 for curve in curves.values())
    mean = [sum(curve[step] for curve in curves.values()) / WORKERS for step in (0, 19)]
    assert mean[1] < mean[0]
    trace = parquet.read_table(cell / "trace.parquet").to_pandas()
    sends = trace[trace.kind == "send"]
    assert all(
        sorted(set(sends[sends.worker == w].peer)) == sorted({(w - 1) % 32, (w + 1) % 32}) for w in range(WORKERS)
    )
    assert place.left_behind() == []


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_two_hundred_and_fifty_six_workers(tmp_path: Path) -> None:
    """Where a process may have as many open files as is usual: what needs more asks for it."""
    place = Place(tmp_path)
    file = write(
        tmp_path,
        workers="256",
        methods="[dpsgd]",
        training="{steps: 2, lr: 0.05}",
        network="{topology: ring, link: {latency: 5ms, rate: 50mbit}}",
    )
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        process = place.start("up", file, "--out", "run", "--no-calibrate")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    _, said = process.communicate(timeout=800)
    assert process.returncode in (0, 6), said
    cell = tmp_path / "run/cells/v0-dpsgd-r0"
    assert sorted(losses(cell)) == list(range(256))
    assert place.left_behind() == []
