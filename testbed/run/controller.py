"""Runs a plan: network up, every cell in turn, results collected and judged, network down. `testbed up` calls it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from testbed.network import state
from testbed.network.calibrate import Calibration, calibrate
from testbed.network.client import start, uninterrupted
from testbed.network.probe import Choice
from testbed.plan.gpus import Assigned
from testbed.plan.model import Cell, NetworkPlan, Plan
from testbed.plan.slow_motion import slower, with_factors
from testbed.results.cell import CellResult
from testbed.results.directory import RunDirectory, environment, moved
from testbed.results.surroundings import MeasuredNetwork
from testbed.run.cell import CellRun
from testbed.run.jobs import own_code
from testbed.run.up import Up
from testbed.runtime import registry as runtimes
from testbed.runtime.base import Place
from testbed.verdict import Verdict
from testbed.worker.progress import Where

REPEATS = 2  # of a cell for which the machine was too slow


class View(Protocol):
    """The progress display."""

    def network(self, network: NetworkPlan, choice: Choice, seconds: float) -> None: ...
    def calibrated(self, label: str, found: Calibration) -> None: ...
    def begins(self, cell: Cell, number: int, of: int) -> None: ...
    def repeats(self, cell: Cell, result: CellResult, factor: float) -> None: ...
    def progress(self, cell: Cell, workers: Sequence[Where], counters: dict[str, Any]) -> None: ...
    def ended(self, cell: Cell, result: CellResult) -> None: ...


@dataclass(frozen=True)
class Options:
    """Settings of a run beside its scenario."""

    box: str = "auto"
    calibrating: bool = True
    data_dir: Path | None = None
    runtime: str = "process"
    image: str = "host"  # for containers
    keep: bool = False  # leave the network up at the end


class Controller:
    """One run."""

    def __init__(self, plan: Plan, run: RunDirectory, options: Options, view: View) -> None:
        self.plan, self.directory, self.options, self.view = plan, run, options, view
        self._up: Up | None = None
        self._point: int | None = None
        self._calibration = self._moved = Verdict("faithful")
        self._name = _network_name(plan.name)
        self._before = run.read_json("environment.json") if run.environment() else None  # of a run that this resumes
        self._unknown = str(run.path / "environment.json") in run.damaged
        self.kept: str | None = None  # the name of the network that was left up

    def run(self, cells: Sequence[Cell]) -> None:
        """Run the given cells, then take everything down, whatever happens."""
        try:
            for number, cell in enumerate(cells):
                self._go_to_point(cell.point)
                self.view.begins(cell, number, len(cells))
                self.view.ended(cell, self._run_until_enough(cell))
            if self.options.keep:
                self._leave_up()
        finally:
            self.close()

    def _run_until_enough(self, cell: Cell) -> CellResult:
        """Run a cell; if the machine was too slow for it and we may choose the factor, repeat it in slower motion.
        Later cells of the same network start with that factor."""
        result, tried = self._run_cell(cell), list[float]()
        while len(tried) < REPEATS and result.starved and (factor := slower(self.plan, cell)):
            tried.append(result.slow_motion)
            self.view.repeats(cell, result, factor)
            self.plan, self._point = with_factors(self.plan, {cell.point: factor}), None
            self._go_to_point(cell.point)
            result = self._run_cell(cell, tried)
        return result

    def close(self) -> None:
        """Take everything down. Once begun, it is not interrupted."""
        with uninterrupted():
            try:
                if self._up:
                    self._up.runtime.close()
            finally:
                if self._up:
                    self._up.handle.close()
                elif not self.kept and (left := state.find(self._name)):  # interrupted just before it was ours
                    state.end(left.directory, left)
                self._up = None
                self.directory.close()

    def _leave_up(self) -> None:
        with uninterrupted():
            if self._up:
                self._up.runtime.close()
                self._up.handle.detach()
                self._up.handle.disconnect()
                self._up, self.kept = None, self._name

    @property
    def up(self) -> Up:
        if self._up is None:
            raise RuntimeError("the network is not up")
        return self._up

    def _go_to_point(self, point: int) -> None:
        """Provide the network of this point: keep, change or rebuild the current one."""
        if point == self._point:
            return
        wanted = replace(self.plan.points[point].network, name=self._name)
        gpus = self.plan.points[point].gpus
        if self._up and self._up.serves(wanted, gpus):
            self._up.change(wanted)
        else:
            self.close()
            self._build(wanted, gpus)
        self._point = point
        self._calibration = self._calibrate(point)

    def _build(self, network: NetworkPlan, gpus: Assigned) -> None:
        began = time.monotonic()
        with self.directory.writing():
            place = Place(
                run=self.directory.path,
                lent=self.directory.lent(""),
                notices=self.directory.notices(""),
                network=network,
                image=self.options.image,
                data=self.options.data_dir,
                code=own_code(self.plan),
                gpus=gpus,
            )
            runtime = runtimes.make(self.options.runtime, place)
        try:
            handle, choice = start(network, self.options.box)
        except BaseException:
            with uninterrupted():
                runtime.close()
            raise
        self._up = Up(handle, runtime, network, gpus, choice.kind)
        runtime.attach(handle)
        settings = handle.call("status")
        self._up.congestion = settings["settings"]["net.ipv4.tcp_congestion_control"]
        now = environment(
            {"box": choice.kind, "box_reason": choice.reason, "box_kernel": settings["kernel"]}
            | {"network_settings": settings["settings"], "gso_segments": settings["gso_segments"]}
            | {"runtime": runtime.name, **runtime.environment(), "resumes": self._before}
            | {"slow_motion": network.slow_motion}
            | {"gpus": {name: list(map(asdict, some)) for name, some in gpus.items() if some}}
        )
        self.directory.write_json("environment.json", now)
        if self._unknown:
            self._moved = Verdict("suspect", ("where the run began is not known: environment.json was damaged",))
        elif change := moved(self._before, now):
            self._moved = Verdict("suspect", (f"the run went on elsewhere: {change}",))
        self.view.network(network, choice, time.monotonic() - began)

    def _calibrate(self, point: int) -> Verdict:
        if not self.options.calibrating:
            return Verdict("suspect", ("the links were not measured",))
        found = calibrate(self.up.handle, self.up.network)
        label = self.plan.points[point].label
        known = [*self.directory.networks(), MeasuredNetwork.of(point, label, self.up.network.mtu, found)]
        self.directory.write_json("links.json", [network.stored() for network in known])
        self.view.calibrated(label, found)
        return found.verdict

    def _run_cell(self, cell: Cell, tried: Sequence[float] = ()) -> CellResult:
        return CellRun(
            self.plan,
            cell,
            self.directory,
            self.up,
            self.options.data_dir,
            (self._calibration, self._moved),
            self._check_after,
            partial(self.view.progress, cell),
            tuple(tried),
        ).run()

    def _check_after(self) -> Verdict:
        """Measure the links once more: latency only, which takes a moment."""
        if not self.options.calibrating:
            return Verdict("faithful")
        found = calibrate(self.up.handle, self.up.network, streams=False).verdict
        return Verdict(found.grade, tuple(f"after the cell, {reason}" for reason in found.reasons))


def _network_name(scenario: str) -> str:
    """Return the scenario's name and this process's id: several processes may run the same scenario at once."""
    own = f"-{os.getpid()}"
    return scenario[: state.LONGEST_NAME - len(own)].rstrip("-") + own
