"""The bench of slow motion: what it plans, and how its rows compare factors. Nothing is run."""

from __future__ import annotations

from testbed import methods
from testbed.bench.slow_motion import FACTORS, NETWORKS, _plan, compared
from testbed.results.cell import CellResult, PlannedCell


def test_every_method_at_every_factor() -> None:
    made = _plan(*NETWORKS[0], 30, "reno")
    assert [point.network.slow_motion for point in made.points] == list(FACTORS)
    assert {cell.method for cell in made.cells} == set(methods.available()) - {"ddp"}, "which needs real gradients"
    assert made.network.congestion == "reno"


def test_a_factor_is_compared_with_real_time() -> None:
    made = _plan(*NETWORKS[0], 30, None)
    cells = [cell for cell in made.cells if cell.method == "dpsgd"]
    steps = dict(zip(FACTORS, (0.100, 0.102, 0.104, None), strict=True))
    results = {}
    for cell in cells:
        factor = made.points[cell.point].network.slow_motion
        if (step := steps[factor]) is not None:
            numbers = {"step_s": step, "floor_s": 0.1, "bytes_per_step": 1.0, "error": None, "slow_motion": factor}
            found = {**numbers, "verdict": {"grade": "faithful", "reasons": ()}}
            results[cell.id] = CellResult.of(PlannedCell(cell.id, cell.method), found)
    rows = list(compared("20ms 20mbit", cells, results))
    assert [(row.value, row.met) for row in rows] == [(100, None), (102, True), (104, False)]
    assert rows[1].metric == "20ms 20mbit, dpsgd, step, 2×"
