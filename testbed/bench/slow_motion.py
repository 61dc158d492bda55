"""`testbed bench slow-motion`: the same cells in real time and in slow motion, where real time is faithful, too.

What does not stretch (TCP's own timers, the kernel's and the backend's work) shows as a difference between factors.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from testbed.bench.table import Row
from testbed.network.probes import Probe
from testbed.plan.make import plan, with_methods_checked
from testbed.plan.model import Cell, Plan
from testbed.results.cell import CellResult
from testbed.results.directory import RunDirectory
from testbed.results.surroundings import MeasuredNetwork
from testbed.run.controller import Controller, Options
from testbed.run.resume import remember
from testbed.scenario.load import loads

FACTORS = (1.0, 2.0, 4.0, 8.0)
NETWORKS = (("20ms", "20mbit"), ("5ms", "100mbit"))
METHODS = (
    "allreduce",
    "ring",
    "dpsgd",
    "sgp",
    "ef_sign",
    "powergossip",
    "{naive: {compressor: {quantize: 8bit}}}",
    "{dcd: {compressor: {quantize: 8bit}}}",
    "{ecd: {compressor: {quantize: 8bit}}}",
    "{deepsqueeze: {compressor: sign}}",
    "{choco: {compressor: sign, gamma: 0.45}}",
)
WITHIN = 0.03  # of what real time gives
SCENARIO = """
name: bench-slow-motion
workers: 4
network: {{topology: ring, link: {{latency: {latency}, rate: {rate}}}{congestion}}}
task: {{model: resnet20, data: cifar10, batch: 32}}
training: {{steps: {steps}, eval_every: {steps}}}
compute: {{emulated: 50ms}}
methods: [{methods}]
sweep: {{slow_motion: [{factors}]}}
"""


def run(
    box: str = "auto",
    steps: int = 30,
    congestion: str | None = None,
    methods: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """All rows; each factor takes as many times longer."""
    rows: list[Row] = []
    for latency, rate in NETWORKS:
        made = _plan(latency, rate, steps, congestion)
        cells = [cell for cell in made.cells if not methods or cell.method in methods]
        with tempfile.TemporaryDirectory(prefix="testbed-") as folder:
            directory = RunDirectory.create(made.name, Path(folder) / "run")
            with directory.locked():
                remember(directory, made.variants[0], made)
                Controller(made, directory, Options(box=box), _Telling(f"{latency} {rate}", say)).run(cells)
                results = {result.id: result for result in directory.results()}
                networks = directory.networks()
        rows += links(f"{latency} {rate}", networks, [point.network.slow_motion for point in made.points])
        rows += compared(f"{latency} {rate}", cells, results)
    return rows


def _plan(latency: str, rate: str, steps: int, congestion: str | None) -> Plan:
    text = SCENARIO.format(
        latency=latency,
        rate=rate,
        steps=steps,
        congestion=f", congestion: {congestion}" if congestion else "",
        methods=", ".join(METHODS),
        factors=", ".join(f"{factor:g}" for factor in FACTORS),
    )
    return with_methods_checked(plan(loads(text, "bench")))


class _Telling:
    """A view of one line for each cell."""

    def __init__(self, where: str, say: Callable[[str], None]) -> None:
        self._where, self._say = where, say

    def network(self, *_: Any) -> None:
        """A bench times cells, not this."""

    def calibrated(self, *_: Any) -> None:
        """The rows have it."""

    def begins(self, cell: Cell, number: int, of: int) -> None:
        self._say(f"{self._where}: cell {number + 1} of {of}, {cell.label}")

    def repeats(self, *_: Any) -> None:
        """Factors are given here."""

    def progress(self, *_: Any) -> None:
        """Nobody watches."""

    def ended(self, cell: Cell, result: CellResult) -> None:
        if result.error:
            self._say(f"  failed: {result.error}")
        elif result.verdict.grade != "faithful":
            self._say(f"  {result.verdict.grade}: {'; '.join(result.verdict.reasons)}")


def links(where: str, networks: Sequence[MeasuredNetwork], factors: Sequence[float]) -> Iterator[Row]:
    """Round trips and goodputs at each factor beside those in real time."""
    found = {factors[network.point]: network.probes for network in networks}
    real = found.get(1.0, ())
    for factor, probes in found.items():
        for what, unit, take in (("round trip", "ms", _round_trips), ("goodput", "Mbit/s", _goodputs)):
            value, reference = (_median(take(some)) for some in (probes, real))
            if value is not None:
                yield _row(f"{where}, {what}, {factor:g}×", value, unit, reference, factor)


def _round_trips(probes: Sequence[Probe]) -> list[float]:
    return [1e3 * probe.rtt for probe in probes if probe.rtt is not None]


def _goodputs(probes: Sequence[Probe]) -> list[float]:
    ways = [way for probe in probes for way in (probe.there, probe.back)]
    return [1e-6 * way.goodput for way in ways if way.goodput is not None]


def compared(where: str, cells: Sequence[Cell], results: dict[str, CellResult]) -> Iterator[Row]:
    """Steps and exchanges of each method at each factor beside those in real time."""
    real = {result.method: result for result in results.values() if result.slow_motion == 1}
    for cell in cells:
        if (result := results.get(cell.id)) is None or result.error:
            continue
        reference = real.get(result.method)
        grade = "" if result.verdict.grade == "faithful" else f" ({result.verdict.grade})"
        for what in ("step_s", "exchange_s"):
            value, other = getattr(result, what), getattr(reference, what, None)
            if value is not None:
                name = f"{where}, {result.method}, {what[:-2]}, {result.slow_motion:g}×{grade}"
                yield _row(name, 1e3 * value, "ms", None if other is None else 1e3 * other, result.slow_motion)


def _row(name: str, value: float, unit: str, real: float | None, factor: float) -> Row:
    if factor == 1 or real is None:
        return Row(name, value, unit)
    met = abs(value - real) <= WITHIN * real
    return Row(name, value, unit, "real time", real, f"within {WITHIN:.0%}", met)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
