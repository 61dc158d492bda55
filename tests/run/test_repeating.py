"""A cell for which the machine was too slow is repeated in slower motion, where nobody has named a factor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.plan.make import plan
from testbed.plan.model import Cell
from testbed.plan.slow_motion import with_factors
from testbed.results.cell import CellResult, PlannedCell
from testbed.results.directory import RunDirectory
from testbed.run.controller import Controller, Options
from testbed.scenario.load import loads
from testbed.verdict import Verdict

SCENARIO = """
name: again
workers: 2
network: {{topology: chain, link: {{latency: {latency}, rate: 10mbit}}}}
compute: {{step_time: 10ms}}
methods: [allreduce, dpsgd]
{more}
"""
BUSY = Verdict("suspect", ("the processors were busy",))


class Notes:
    """A view that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def network(self, *_: Any) -> None: ...
    def calibrated(self, *_: Any) -> None: ...
    def begins(self, *_: Any) -> None: ...
    def progress(self, *_: Any) -> None: ...

    def repeats(self, cell: Cell, result: CellResult, factor: float) -> None:
        self.told.append((cell.method, result.slow_motion, factor))

    def ended(self, cell: Cell, result: CellResult) -> None:
        self.told.append((cell.method, result.slow_motion, result.tried, result.verdict.grade))


class Rehearsal(Controller):
    """Cells that are too much for the machine below a factor."""

    def __init__(
        self, directory: Path, enough: float, *, more: str = "", latency: str = "1ms", first: float = 1
    ) -> None:
        made = with_factors(plan(loads(SCENARIO.format(more=more, latency=latency), "again.yaml")), {0: first})
        self.notes, self.enough, self.points = Notes(), enough, list[float]()
        super().__init__(made, RunDirectory.create("again", directory), Options(), self.notes)

    def _go_to_point(self, point: int) -> None:
        if point != self._point:
            self._point = point
            self.points.append(self.plan.points[point].network.slow_motion)

    def _run_cell(self, cell: Cell, tried: Sequence[float] = ()) -> CellResult:
        factor = self.plan.points[cell.point].network.slow_motion
        starved = factor < self.enough
        numbers = {"step_s": 0.1, "floor_s": 0.1, "bytes_per_step": 1.0, "error": None}
        found = {**numbers, "verdict": BUSY if starved else Verdict("faithful"), "starved": starved}
        return CellResult.of(PlannedCell(cell.id, cell.method), {**found, "slow_motion": factor, "tried": tried})

    def told(self, methods: Iterable[str] = ("allreduce", "dpsgd")) -> list[Any]:
        self.run([cell for cell in self.plan.cells if cell.method in methods])
        return self.notes.told


def test_a_cell_is_repeated_with_twice_the_factor_and_later_ones_begin_with_it(tmp_path: Path) -> None:
    rehearsal = Rehearsal(tmp_path / "run", enough=3)
    assert rehearsal.told() == [
        ("allreduce", 1, 2),
        ("allreduce", 2, 4),
        ("allreduce", 4, (1, 2), "faithful"),
        ("dpsgd", 4, (), "faithful"),
    ]
    assert rehearsal.points == [1, 2, 4]


def test_at_most_twice(tmp_path: Path) -> None:
    assert Rehearsal(tmp_path / "run", enough=99, first=1.5).told(["dpsgd"]) == [
        ("dpsgd", 1.5, 3),
        ("dpsgd", 3, 6),
        ("dpsgd", 6, (1.5, 3), "suspect"),
    ]


@pytest.mark.parametrize("more", ["slow_motion: 1", "slow_motion: 1.0"])
def test_a_factor_that_somebody_named_stays(tmp_path: Path, more: str) -> None:
    assert Rehearsal(tmp_path / "run", enough=3, more=more).told(["dpsgd"]) == [("dpsgd", 1, (), "suspect")]


def test_not_beyond_the_slowest_and_not_beyond_what_links_allow(tmp_path: Path) -> None:
    assert Rehearsal(tmp_path / "a", enough=99, first=48).told(["dpsgd"]) == [("dpsgd", 48, (), "suspect")]
    long = Rehearsal(tmp_path / "b", enough=99, first=16, latency="10s")
    assert long.told(["dpsgd"]) == [("dpsgd", 16, (), "suspect")]
