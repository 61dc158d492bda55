"""Runs a plan: network up, every cell in turn, results collected and judged, everything down. `testbed up` calls it."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from testbed.jobs import cores, jobs
from testbed.network.calibrate import Calibration, calibrate
from testbed.network.handle import Handle, start
from testbed.network.probe import Choice
from testbed.plan import Cell, NetworkPlan, Plan
from testbed.results.digest import bytes_handed_over, digest
from testbed.results.rundir import RunDirectory, environment
from testbed.results.sampler import Sampler
from testbed.results.verdict import Verdict, judge_bytes, judge_load, worst
from testbed.runtime.base import Outcome, Runtime
from testbed.runtime.process import ProcessRuntime
from testbed.worker.job import Job
from testbed.worker.progress import Progress, Where
from testbed.worker.result import JobResult, write_tables

SAMPLE_SECONDS = 0.2
HEADERS = 66  # bytes of Ethernet, IP and TCP (with timestamps) that the kernel counts with every packet


class View(Protocol):
    """Whoever tells people how it goes."""

    def network(self, network: NetworkPlan, choice: Choice, seconds: float) -> None: ...
    def calibrated(self, label: str, found: Calibration) -> None: ...
    def begins(self, cell: Cell, number: int, of: int) -> None: ...
    def progress(self, cell: Cell, workers: Sequence[Where], counters: dict[str, Any]) -> None: ...
    def ended(self, cell: Cell, result: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Options:
    """How to run, beside what the scenario says."""

    box: str = "auto"
    calibrating: bool = True
    data_dir: Path | None = None


@dataclass
class _Up:
    """What runs at the moment."""

    handle: Handle
    runtime: Runtime
    network: NetworkPlan  # as its links are now


class Controller:
    """One run."""

    def __init__(self, plan: Plan, run: RunDirectory, options: Options, view: View) -> None:
        self.plan, self.directory, self.options, self.view = plan, run, options, view
        self._up: _Up | None = None
        self._point: int | None = None
        self._calibration = Verdict("faithful")

    def run(self, cells: Sequence[Cell]) -> None:
        """All given cells, then everything down, whatever happens."""
        try:
            for number, cell in enumerate(cells):
                self._go_to_point(cell.point)
                self.view.begins(cell, number, len(cells))
                self.view.ended(cell, self._run_cell(cell))
        finally:
            self.close()

    def close(self) -> None:
        if self._up:
            self._up.runtime.close()
            self._up.handle.close()
            self._up = None

    @property
    def up(self) -> _Up:
        if self._up is None:
            raise RuntimeError("the network is not up")
        return self._up

    def _go_to_point(self, point: int) -> None:
        """Have the network of this point: as it is, changed, or built anew."""
        if point == self._point:
            return
        wanted = replace(self.plan.points[point].network, name=f"{self.plan.name}-{os.getpid()}")
        if self._up and self._up.network.same_structure(wanted):
            for now, then in zip(self._up.network.links, wanted.links, strict=True):
                if (now.ab, now.ba) != (then.ab, then.ba):
                    self._up.handle.set_link(then.name, asdict(then.ab), asdict(then.ba))
            self._up.network = wanted
        else:
            self.close()
            self._build(wanted)
        self._point = point
        self._calibration = self._calibrate(point)

    def _build(self, network: NetworkPlan) -> None:
        began = time.monotonic()
        handle, choice = start(network, self.options.box)
        try:
            runtime = ProcessRuntime(handle, self.directory.path / "nursery.log")
        except BaseException:
            handle.close()
            raise
        self._up = _Up(handle, runtime, network)
        settings = handle.call("status")
        self.directory.write_json(
            "environment.json",
            environment(
                {"box": choice.kind, "box_reason": choice.reason, "box_kernel": settings["kernel"]}
                | {"network_settings": settings["settings"], "gso_segments": settings["gso_segments"]}
                | {"runtime": runtime.name}
            ),
        )
        self.view.network(network, choice, time.monotonic() - began)

    def _calibrate(self, point: int) -> Verdict:
        if not self.options.calibrating:
            return Verdict("suspect", ("the links were not measured",))
        found = calibrate(self.up.handle, self.up.network)
        label = self.plan.points[point].label
        known = self.directory.read_json("links.json", [])
        self.directory.write_json("links.json", [*known, {"point": point, "label": label, **asdict(found)}])
        self.view.calibrated(label, found)
        return found.verdict

    def _run_cell(self, cell: Cell) -> dict[str, Any]:
        directory = self.directory.cell(cell.id)
        (directory / "logs").mkdir(parents=True, exist_ok=True)
        (directory / "rendezvous").unlink(missing_ok=True)
        scenario = self.plan.variants[cell.variant]
        todo = jobs(self.plan, cell, directory, self.options.data_dir)
        progress = Progress(directory / "progress", len(todo), create=True)
        sampler = Sampler()
        before = self.up.handle.counters()
        self.up.runtime.start(
            todo, directory / "logs", cores(scenario, self.up.network, sorted(os.sched_getaffinity(0)))
        )
        outcome = self._watch(cell, progress, sampler, time.monotonic() + scenario.deadline)
        after = self.up.handle.counters()
        sampler.write(directory / "counters.parquet")
        if outcome.error is None:
            result = self._collect(cell, todo, sampler, before, after)
        else:
            result = {
                "error": outcome.error,
                "hint": outcome.hint,
                "verdict": asdict(Verdict("invalid", (outcome.error,))),
            }
        (directory / "rendezvous").unlink(missing_ok=True)
        self.directory.write_json(f"cells/{cell.id}/verdict.json", result["verdict"])
        self.directory.write_json(f"cells/{cell.id}/result.json", result)
        return result

    def _watch(self, cell: Cell, progress: Progress, sampler: Sampler, deadline: float) -> Outcome:
        """Until the workers are done, one of them failed, or the cell took too long."""
        names = [worker.name for worker in self.plan.points[cell.point].network.workers]
        while True:
            counters = self.up.handle.counters()
            sampler.take(counters, self.up.runtime.pids(), names)
            self.view.progress(cell, progress.all(), counters)
            if outcome := self.up.runtime.poll(SAMPLE_SECONDS):
                return outcome
            if time.monotonic() > deadline:
                for rank in range(len(names)):
                    self.up.runtime.kill(rank)
                while self.up.runtime.poll(1.0) is None:
                    continue
                return Outcome(
                    "the cell took longer than the scenario's deadline", "raise deadline, or train fewer steps"
                )

    def _collect(
        self, cell: Cell, todo: Sequence[Job], sampler: Sampler, before: dict[str, Any], after: dict[str, Any]
    ) -> dict[str, Any]:
        directory = self.directory.cell(cell.id)
        results = [JobResult.read(directory, job.rank) for job in todo]
        write_tables(results, directory)
        wanted = self.plan.variants[cell.variant].training.target
        target = (wanted.kind, float(wanted.options)) if wanted else None
        found = digest(results, self.up.network, target)
        ports = {name: _payload(before["ports"][name], after["ports"][name]) for name in after["ports"]}
        verdict = worst(
            [
                self._calibration,
                judge_load(_median(sampler.idle), _median(sampler.box_share)),
                *(
                    judge_bytes(name, bytes_handed_over(result, len(results)), ports[name])
                    for name, result in zip((job.name_of(job.rank) for job in todo), results, strict=True)
                ),
                self._check_after(),
            ]
        )
        for job in todo:
            (directory / f"worker.{job.rank}.npz").unlink()
        memory = [value for _, kind, _, counter, value in sampler.rows if kind == "worker" and counter == "memory_own"]
        return {
            "error": None,
            **found,
            "wire_bytes": sum(after["ports"][name][3] - before["ports"][name][3] for name in ports),
            "idle": _median(sampler.idle),
            "box_share": _median(sampler.box_share),
            "memory_per_worker": max(memory, default=None),
            "verdict": asdict(verdict),
        }

    def _check_after(self) -> Verdict:
        """The links once more: latency alone, which takes a moment."""
        if not self.options.calibrating:
            return Verdict("faithful")
        found = calibrate(self.up.handle, self.up.network, streams=False).verdict
        return Verdict(found.grade, tuple(f"after the cell, {reason}" for reason in found.reasons))


def _payload(before: Sequence[int], after: Sequence[int]) -> int:
    """What TCP carried out of a port: all bytes less the headers of every packet."""
    packets, count = after[1] - before[1], after[3] - before[3]
    return count - HEADERS * packets


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def incomplete(plan: Plan, run: RunDirectory) -> list[Cell]:
    """The cells that have no result, or failed."""
    return [
        cell for cell in plan.cells if (run.read_json(f"cells/{cell.id}/result.json") or {"error": "none"})["error"]
    ]


def describe_cells(plan: Plan) -> list[dict[str, Any]]:
    """What cells.json holds: which cell is what."""
    described = []
    for cell in plan.cells:
        point = plan.points[cell.point]
        described.append({**asdict(cell), "point_label": point.label, "workers": len(point.network.workers)})
    return described
