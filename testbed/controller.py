"""Runs a plan: network up, every cell in turn, results collected and judged, everything down. `testbed up` calls it."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from testbed import interrupts, losses
from testbed.errors import StorageError, TrainingError
from testbed.faults import Director
from testbed.jobs import allowances, jobs, own_code, rejoinable, survives
from testbed.network import state
from testbed.network.box import BOXES
from testbed.network.calibrate import Calibration, calibrate
from testbed.network.handle import Handle, start, uninterrupted
from testbed.network.probe import Choice
from testbed.network.superpackets import fitting
from testbed.plan import Cell, NetworkPlan, Plan
from testbed.rejoins import Rejoins
from testbed.results.digest import bytes_handed_over, digest
from testbed.results.rundir import RunDirectory, environment, moved
from testbed.results.sampler import Sampler
from testbed.results.verdict import Verdict, judge_bytes, judge_compute, judge_load, worst
from testbed.runtime import choice as runtimes
from testbed.runtime.base import Outcome, Place, Runtime
from testbed.runtime.gpus import Assigned
from testbed.worker.job import Job
from testbed.worker.lost import Lost
from testbed.worker.progress import Progress, Where
from testbed.worker.result import JobResult, merge_unfinished, write_tables

SAMPLE_SECONDS = 0.2
SAMPLING_SECONDS = 0.03  # a sample takes a moment: none so shortly before an event
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
    runtime: str = "process"
    image: str = "host"  # for containers
    keep: bool = False  # leave the network up at the end


@dataclass
class _Up:
    """What runs at the moment."""

    handle: Handle
    runtime: Runtime
    network: NetworkPlan  # as its links are now
    gpus: Assigned
    box: str
    segments: Mapping[str, int]  # that workers' packets may have at most: ports are made for them
    congestion: str = ""  # control of TCP in force

    def serves(self, wanted: NetworkPlan, gpus: Assigned) -> bool:
        """Whether that network can be had by changing links of this one."""
        if not self.network.same_structure(wanted) or self.gpus != gpus:
            return False
        return all(count <= self.segments[name] for name, count in _segments(wanted, self.box).items())


class Controller:
    """One run."""

    def __init__(self, plan: Plan, run: RunDirectory, options: Options, view: View) -> None:
        self.plan, self.directory, self.options, self.view = plan, run, options, view
        self._up: _Up | None = None
        self._point: int | None = None
        self._calibration = self._moved = Verdict("faithful")
        self._name = _network_name(plan.name)
        self._before = run.read_json("environment.json")  # of a run that this one resumes
        self.kept: str | None = None  # the name of the network that was left up

    def run(self, cells: Sequence[Cell]) -> None:
        """All given cells, then everything down, whatever happens."""
        try:
            for number, cell in enumerate(cells):
                self._go_to_point(cell.point)
                self.view.begins(cell, number, len(cells))
                self.view.ended(cell, self._run_cell(cell))
            if self.options.keep:
                self._leave_up()
        finally:
            self.close()

    def close(self) -> None:
        """Once begun, it is not interrupted."""
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

    def _leave_up(self) -> None:
        with uninterrupted():
            if self._up:
                self._up.runtime.close()
                self._up.handle.detach()
                self._up.handle.disconnect()
                self._up, self.kept = None, self._name

    @property
    def up(self) -> _Up:
        if self._up is None:
            raise RuntimeError("the network is not up")
        return self._up

    def _go_to_point(self, point: int) -> None:
        """Have the network of this point: as it is, changed, or built anew."""
        if point == self._point:
            return
        wanted = replace(self.plan.points[point].network, name=self._name)
        gpus = self.plan.points[point].gpus
        if self._up and self._up.serves(wanted, gpus):
            for now, then in zip(self._up.network.links, wanted.links, strict=True):
                if (now.ab, now.ba) != (then.ab, then.ba):
                    self._up.handle.set_link(then.name, asdict(then.ab), asdict(then.ba))
            self._up.network = wanted
        else:
            self.close()
            self._build(wanted, gpus)
        self._point = point
        self._calibration = self._calibrate(point)

    def _build(self, network: NetworkPlan, gpus: Assigned) -> None:
        began = time.monotonic()
        with self.directory.writing():
            place = Place(
                self.directory.path, network, self.options.image, self.options.data_dir, own_code(self.plan), gpus
            )
            runtime = runtimes.make(self.options.runtime, place)
        try:
            handle, choice = start(network, self.options.box)
        except BaseException:
            with uninterrupted():
                runtime.close()
            raise
        self._up = _Up(handle, runtime, network, gpus, choice.kind, _segments(network, choice.kind))
        runtime.attach(handle)
        settings = handle.call("status")
        self._up.congestion = settings["settings"]["net.ipv4.tcp_congestion_control"]
        now = environment(
            {"box": choice.kind, "box_reason": choice.reason, "box_kernel": settings["kernel"]}
            | {"network_settings": settings["settings"], "gso_segments": settings["gso_segments"]}
            | {"runtime": runtime.name, **runtime.environment(), "resumes": self._before}
            | {"gpus": {name: list(map(asdict, some)) for name, some in gpus.items() if some}}
        )
        self.directory.write_json("environment.json", now)
        if change := moved(self._before, now):
            self._moved = Verdict("suspect", (f"the run went on elsewhere: {change}",))
        self.view.network(network, choice, time.monotonic() - began)

    def _calibrate(self, point: int) -> Verdict:
        if not self.options.calibrating:
            return Verdict("suspect", ("the links were not measured",))
        found = calibrate(self.up.handle, self.up.network)
        label = self.plan.points[point].label
        known = self.directory.read_json("links.json", [])
        self.directory.write_json(
            "links.json", [*known, {"point": point, "label": label, "mtu": self.up.network.mtu, **asdict(found)}]
        )
        self.view.calibrated(label, found)
        return found.verdict

    def _run_cell(self, cell: Cell) -> dict[str, Any]:
        directory = self.directory.cell(cell.id)
        scenario = self.plan.variants[cell.variant]
        todo = jobs(self.plan, cell, directory, self.options.data_dir)
        with self.directory.writing():
            shutil.rmtree(directory, ignore_errors=True)  # what an earlier attempt left
            (directory / "logs").mkdir(parents=True)
            progress = Progress(directory / "progress", len(todo), create=True)
        network, handle, runtime = self.up.network, self.up.handle, self.up.runtime
        waits = todo[0].deadline
        restarted: dict[str, Sequence[int]] = {}  # what a worker's port had counted when it was started again
        rejoins = self._rejoins(cell, todo, progress, restarted)
        director = Director(
            scenario, network, handle, runtime, progress, patience=waits, tolerant=todo[0].tolerant, rejoins=rejoins
        )
        sampler, began = Sampler(), time.monotonic()
        before = handle.counters()
        try:
            allowed = allowances(scenario, self.up.network, sorted(os.sched_getaffinity(0)))
            self.up.runtime.start(todo, directory / "logs", allowed)
            outcome = self._watch(cell, progress, sampler, director, time.monotonic() + scenario.deadline)
        except TrainingError as error:  # the runtime itself failed
            outcome = Outcome(str(error), error.hint)
        director.close()
        sampler.rows += director.counters()
        after = self.up.handle.counters()
        if outcome.storage:
            raise StorageError(outcome.error or "", hint=outcome.hint)
        self.directory.remove_links(cell.id)
        with self.directory.writing():
            sampler.write(directory / "counters.parquet")
        if outcome.error is None:
            lost, back, names = Lost(directory), rejoins.done if rejoins else [], todo[0].names
            living = [job for job in todo if job.rank not in lost.ranks()]
            result = self._collect(cell, living, sampler, {**before, "restarted": restarted}, after)
            zero = max(where.start_ns for where in progress.all()) / 1e9
            result["lost"] = losses.describe(
                lost.all(), names, zero, director.killed, back, steps=scenario.training.steps
            )
            result["rejoined"] = losses.returns(back, lost.all(), names, zero)
            result["warnings"] += losses.warnings(lost.ranks(), names, self.plan.points[cell.point].gossip)
            result["warnings"] += [one["text"] for one in (*result["lost"], *result["rejoined"])]
        else:
            result = self._ended_early(cell, outcome, progress, director, sampler)
        Lost(directory).clear()
        result["events"], result["patience_s"] = director.record, waits
        result["backend"], result["congestion"] = todo[0].backend, self.up.congestion
        result["shortcomings"] = list(self.up.runtime.shortcomings)
        started = max(where.start_ns for where in progress.all())
        result["first_step_s"] = started / 1e9 - began if started else None  # since the cell began
        result["cell_s"] = time.monotonic() - began
        for path in (directory / "progress", *directory.glob("rendezvous*")):
            path.unlink(missing_ok=True)
        shutil.rmtree(directory / "snapshots", ignore_errors=True)  # of workers that failed, or came back too late
        self.directory.write_json(f"cells/{cell.id}/verdict.json", result["verdict"])
        self.directory.write_json(f"cells/{cell.id}/result.json", result)
        return result

    def _rejoins(
        self, cell: Cell, todo: Sequence[Job], progress: Progress, restarted: dict[str, Sequence[int]]
    ) -> Rejoins | None:
        """How workers of this cell come back, if they can."""
        if not (todo[0].tolerant and rejoinable(self.plan.variants[cell.variant], cell)):
            return None

        def restart(rank: int, job: Job) -> None:
            name = job.name_of(rank)
            restarted[name] = self.up.handle.counters()["ports"][name]
            self.up.runtime.restart(rank, job)

        gossip = self.plan.points[cell.point].gossip
        return Rejoins(todo, gossip, progress, Lost(Path(todo[0].directory)), restart)

    def _ended_early(
        self, cell: Cell, outcome: Outcome, progress: Progress, director: Director, sampler: Sampler
    ) -> dict[str, Any]:
        """What there is to say of a cell that failed or diverged; what is of no use to anybody is removed."""
        directory = self.directory.cell(cell.id)
        with self.directory.writing():
            merge_unfinished(directory)
        for path in (*directory.glob("worker.*.npz"), *directory.glob("*.part")):
            path.unlink()
        names = [worker.name for worker in self.up.network.workers]
        scenario, needs_all = self.plan.variants[cell.variant], None
        if scenario.on_failure == "continue" and not survives(scenario, cell):
            needs_all = cell.method
        error, hint = losses.explain(
            outcome.error or "",
            outcome.hint,
            done=director.done,
            names=names,
            workers=progress.all(),
            needs_all=needs_all,
            tolerant=scenario.on_failure == "continue",
            steps=scenario.training.steps,
        )
        emulation = worst([self._calibration, _load(sampler)]) if outcome.diverged else Verdict("invalid", (error,))
        return {
            "error": error,
            "hint": hint,
            "diverged": outcome.diverged,  # None: it failed
            "reached": max(0, min(where.step for where in progress.all())),  # steps that all workers have done
            "warnings": [],
            "verdict": asdict(emulation),
        }

    def _watch(self, cell: Cell, progress: Progress, sampler: Sampler, director: Director, deadline: float) -> Outcome:
        """Until the workers are done, one of them failed, or the cell took too long; events happen meanwhile."""
        names = [worker.name for worker in self.plan.points[cell.point].network.workers]
        steps, next_sample = self.plan.variants[cell.variant].training.steps, 0.0
        while True:
            interrupts.check()
            pause = director.follow()
            if time.monotonic() >= next_sample and director.quiet_for(SAMPLING_SECONDS):
                next_sample = time.monotonic() + SAMPLE_SECONDS
                counters = self.up.handle.counters()
                where = progress.all()
                training = any(0 <= one.step < steps for one in where)
                sampler.take(counters, self.up.runtime.pids(), names, training=training)
                self.view.progress(cell, where, counters)
            if outcome := self.up.runtime.poll(max(0.0, min(pause, next_sample - time.monotonic()))):
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
        """From the jobs that were done, all or those of the workers that lived."""
        directory = self.directory.cell(cell.id)
        results = [JobResult.read(directory, job.rank) for job in todo]
        with self.directory.writing():
            write_tables(results, directory)
        wanted = self.plan.variants[cell.variant].training.target
        target = (wanted.kind, float(wanted.options)) if wanted else None
        found = digest(results, self.up.network, target)
        since = {**before["ports"], **before["restarted"]}
        ports = {name: _payload(since[name], after["ports"][name]) for name in after["ports"]}
        names = [job.name_of(job.rank) for job in todo]
        sent = {name: bytes_handed_over(one, len(results)) for name, one in zip(names, results, strict=True)}
        again = {name: one.tcp_bytes_again for name, one in zip(names, results, strict=True)}
        verdict = worst(
            [
                self._calibration,
                self._moved,
                _load(sampler),
                judge_compute(found["queued"], found["overruns"] / (found["steps"] * len(todo))),
                *(judge_bytes(name, sent[name], ports[name], again[name]) for name in names),
                self._check_after(),
            ]
        )
        for job in todo:
            (directory / f"worker.{job.rank}.npz").unlink()
        memory = [value for _, kind, _, counter, value in sampler.rows if kind == "worker" and counter == "memory_own"]
        return {
            "error": None,
            **found,
            "payload": {name: {"trainer": count, "port": ports[name]} for name, count in sent.items()},
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


def _segments(network: NetworkPlan, kind: str) -> dict[str, int]:
    return fitting(network, network.links, BOXES[kind].packets_per_second)


def _network_name(scenario: str) -> str:
    """The scenario's, and which of the processes that may run it at the same time."""
    own = f"-{os.getpid()}"
    return scenario[: state.LONGEST_NAME - len(own)].rstrip("-") + own


def _payload(before: Sequence[int], after: Sequence[int]) -> int:
    """What TCP carried out of a port: all bytes less the headers of every packet."""
    packets, count = after[1] - before[1], after[3] - before[3]
    return count - HEADERS * packets


def _load(sampler: Sampler) -> Verdict:
    return judge_load(_median(sampler.idle), _median(sampler.box_share), _median(sampler.stolen))


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
