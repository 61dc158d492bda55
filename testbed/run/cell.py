"""Runs one cell: starts and watches its workers, collects and judges their results. The controller calls it on a
network that is up."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from testbed import interrupts
from testbed.errors import DivergedError, StorageError, TestbedError, TrainingError
from testbed.plan.model import Cell, Plan
from testbed.plan.timeouts import model_bytes
from testbed.results.cell import CellResult, Divergence, Payload, PlannedCell, Target
from testbed.results.digest import bytes_handed_over, digest
from testbed.results.directory import RunDirectory
from testbed.run import failures
from testbed.run.faults import FaultInjector
from testbed.run.jobs import allowances, jobs, rejoinable, survives
from testbed.run.rejoin_coordinator import Rejoins
from testbed.run.sampler import Sampler
from testbed.run.up import Up
from testbed.runtime.base import Outcome
from testbed.verdict import Verdict, judge_bytes, judge_compute, judge_load, worst
from testbed.worker.job import Job
from testbed.worker.lost import Lost
from testbed.worker.progress import Board, Where, orders
from testbed.worker.result import JobResult, consistent, merge_unfinished, read_result, write_tables

SAMPLE_SECONDS = 0.2  # of the scenario's time
LONGEST_SAMPLE = 1.0  # second of real time: somebody may be watching
SAMPLING_SECONDS = 0.03  # a sample takes a moment: none so shortly before an event
CHECKPOINTS = ("checkpoints", "snapshots")  # of an attempt that was interrupted: all that its workers go on from
OURS = ("progress", "rendezvous*", *CHECKPOINTS, "worker.*", "unfinished.*")  # of what workers write
OUR_DOING = 0.5  # of the busy processors' time used by workers and box: slow motion does not help against others
HEADERS = 66  # bytes of Ethernet, IP and TCP (with timestamps) that the kernel counts with every packet

Ports = dict[str, Sequence[int]]  # what the kernel has counted, by worker
Show = Callable[[Sequence[Where], dict[str, Any]], None]


@dataclass
class CellRun:
    """A cell, from its start to its result."""

    plan: Plan
    cell: Cell
    directory: RunDirectory
    up: Up
    data_dir: Path | None
    known: Sequence[Verdict]  # of the network and the machine, before the cell began
    check_links: Callable[[], Verdict]  # once more, after it
    show: Show
    tried: tuple[float, ...] = ()  # factors of slow motion that were not enough
    restarted: Ports = field(default_factory=dict)  # as they were when a worker was started again

    def run(self) -> CellResult:
        """Run it; return its result, which is also on disk. StorageError where it cannot be written."""
        began = time.monotonic()
        self.factor = self.up.network.slow_motion
        self.sampler = Sampler(slow_motion=self.factor)
        self._prepare()
        before: Ports = self.up.handle.counters()["ports"]
        outcome = self._train()
        self.injector.close()
        self.sampler.rows += self.injector.counters()
        after: Ports = self.up.handle.counters()["ports"]
        if isinstance(outcome.cause, StorageError) and self.directory.refuses():  # a worker may lie about the disk
            raise outcome.cause
        with self.directory.writing():
            self.sampler.write(self.directory.cell(self.cell.id) / "counters.parquet")
        if outcome.cause is None:
            try:
                found = self._done(before, after)
            except TrainingError as error:  # of what a worker has left
                outcome = Outcome(error)
        if outcome.cause is not None:
            found = self._ended_early(outcome.cause)
        return self._keep(found, began)

    def _prepare(self) -> None:
        """Prepare directories, jobs, and what follows the workers' progress."""
        run, cell, up = self.directory, self.cell, self.up
        lent = run.lent(cell.id)
        self.scenario = self.plan.variants[cell.variant]
        resume = run.begin(cell.id, CHECKPOINTS if self.scenario.training.checkpoint_every else ())
        self.jobs = jobs(self.plan, cell, lent, run.notices(cell.id), self.data_dir, resume=resume)
        self.names = [job.name_of(job.rank) for job in self.jobs]
        first = self.jobs[0]
        with run.writing():
            self.progress = Board(lent / "progress", orders(first.news), len(self.jobs))
        self.lost = Lost(first.news)
        self.rejoins = None
        if first.tolerant and rejoinable(self.scenario, cell):
            gossip = self.plan.points[cell.point].gossip
            self.rejoins = Rejoins(self.jobs, gossip, self.progress, self.lost, self._restart)
        self.injector = FaultInjector(
            self.scenario,
            up.network,
            up.handle,
            up.runtime,
            self.progress,
            patience=first.message_timeout / self.factor,
            tolerant=first.tolerant,
            rejoins=self.rejoins,
        )

    def _restart(self, rank: int, job: Job) -> None:
        name = self.names[rank]
        self.restarted[name] = self.up.handle.counters()["ports"][name]
        self.up.runtime.restart(rank, job)

    # While it trains

    def _train(self) -> Outcome:
        try:
            allowed = allowances(self.scenario, self.up.network, sorted(os.sched_getaffinity(0)))
            logs = self.directory.cell(self.cell.id) / "logs"
            self.up.runtime.start(self.jobs, self.progress, logs, allowed)
            return self._watch(time.monotonic() + self.scenario.deadline * self.factor)
        except TrainingError as error:  # the runtime itself failed
            return Outcome(error)

    def _watch(self, deadline: float) -> Outcome:
        """Wait until the workers are done, one of them fails, or the deadline passes; carry out events meanwhile."""
        next_sample, runtime = 0.0, self.up.runtime
        while True:
            interrupts.check()
            pause = self.injector.follow()
            if time.monotonic() >= next_sample and self.injector.quiet_for(SAMPLING_SECONDS):
                next_sample = time.monotonic() + min(LONGEST_SAMPLE, SAMPLE_SECONDS * self.factor)
                self._sample()
            if outcome := runtime.poll(max(0.0, min(pause, next_sample - time.monotonic()))):
                return outcome
            if time.monotonic() > deadline:
                for rank in range(len(self.names)):
                    runtime.kill(rank)
                while runtime.poll(1.0) is None:
                    continue
                words = "the cell took longer than the scenario's deadline"
                return Outcome(TrainingError(words, hint="raise deadline, or train fewer steps"))

    def _sample(self) -> None:
        counters, where = self.up.handle.counters(), self.progress.all()
        training = any(0 <= one.step < self.scenario.training.steps for one in where)
        self.sampler.take(counters, self.up.runtime.pids(), self.names, training=training)
        self.show(where, counters)

    # Once it is over

    def _done(self, before: Ports, after: Ports) -> CellResult:
        """Make the result from the jobs that were done: all, or those of the surviving workers. TrainingError where one
        of them left something other than results."""
        lost, steps = self.lost, self.scenario.training.steps
        living = [job for job in self.jobs if job.rank not in lost.ranks()]
        numel = model_bytes(self.scenario.task.spec) // 4
        results = [read_result(job, steps, numel) for job in living]
        with self.directory.writing():
            write_tables(results, self.directory.cell(self.cell.id))
        wanted = self.scenario.training.target
        target = Target(wanted.kind, float(wanted.options)) if wanted else None  # type: ignore[arg-type]
        with consistent():
            found = digest(results, self.up.network, target)
            payload = self._payload(living, results, {**before, **self.restarted}, after)
        back = self.rejoins.done if self.rejoins else []
        zero = max(where.start_ns for where in self.progress.all()) / 1e9
        killed, factor = self.injector.killed, self.factor
        left = failures.describe(lost.all(), self.names, zero, killed, back, steps=steps, slow_motion=factor)
        returned = failures.returns(back, lost.all(), self.names, zero, factor)
        warned = failures.warnings(lost.ranks(), self.names, self.plan.points[self.cell.point].gossip)
        memory = (row[4] for row in self.sampler.rows if (row[1], row[3]) == ("worker", "memory_own"))
        machine = self._machine(found, len(results))
        made = replace(
            found,
            verdict=self._judge(machine, results, payload),
            starved=machine.grade != "faithful" and (_median(self.sampler.own_share) or 0.0) >= OUR_DOING,
            payload=payload,
            wire_bytes=sum(after[name][3] - before[name][3] for name in after),
            idle=_median(self.sampler.idle),
            box_share=_median(self.sampler.box_share),
            memory_per_worker=max(memory, default=None),
            lost=left,
            rejoined=returned,
            warnings=(*found.warnings, *warned, *(one.text for one in left), *(one.text for one in returned)),
        )
        with consistent():  # a worker's spans may say that messages came before they were sent
            return CellResult.of(PlannedCell(self.cell.id, self.cell.method, dict(self.cell.options)), made.stored())

    def _payload(
        self, living: Sequence[Job], results: Sequence[JobResult], before: Ports, after: Ports
    ) -> dict[str, Payload]:
        """Return each worker's bytes: as reported by it, and as TCP sent them through its port, without headers."""
        found = {}
        for job, result in zip(living, results, strict=True):
            name = job.name_of(job.rank)
            packets, count = (after[name][index] - before[name][index] for index in (1, 3))
            found[name] = Payload(bytes_handed_over(result, len(results)), count - HEADERS * packets)
        return found

    def _machine(self, found: CellResult, workers: int) -> Verdict:
        """Judge whether the machine was fast enough."""
        late = (found.overruns or 0) / ((found.steps or 1) * workers)
        return worst([self._load(), judge_compute(found.queued, late)]).at(self.factor)

    def _judge(self, machine: Verdict, results: Sequence[JobResult], payload: dict[str, Payload]) -> Verdict:
        carried = [
            judge_bytes(name, one.trainer, one.port, result.tcp_bytes_again)
            for (name, one), result in zip(payload.items(), results, strict=True)
        ]
        return worst([*self.known, machine, *carried, self.check_links()])

    def _load(self) -> Verdict:
        sampler = self.sampler
        return judge_load(_median(sampler.idle), _median(sampler.box_share), _median(sampler.stolen))

    def _ended_early(self, cause: TestbedError) -> CellResult:
        """Make the result of a cell that failed or diverged."""
        scenario, cell = self.scenario, self.cell
        tolerant, workers = scenario.on_failure == "continue", self.progress.all()
        with self.directory.writing():
            damaged = merge_unfinished(
                self.directory.lent(cell.id), self.directory.cell(cell.id), len(self.names), scenario.training.steps
            )
        error, hint = failures.explain(
            cause,
            done=self.injector.done,
            names=self.names,
            workers=workers,
            needs_all=cell.method if tolerant and not survives(scenario, cell) else None,
            tolerant=tolerant,
            steps=scenario.training.steps,
        )
        diverged, verdict = None, Verdict("invalid", (error,))
        if isinstance(cause, DivergedError):
            diverged, verdict = Divergence(cause.worker, cause.step), worst([self.known[0], self._load()])
        reached = max(0, min(where.step for where in workers))
        return CellResult(error, verdict, hint, diverged, reached, warnings=tuple(damaged))

    def _keep(self, found: CellResult, began: float) -> CellResult:
        """Write the result with what is known of every cell; remove what is no longer needed."""
        cell, first = self.cell, self.jobs[0]
        started = max(where.start_ns for where in self.progress.all())
        found = replace(
            found,
            events=self.injector.record,
            patience_s=first.message_timeout / self.factor,
            slow_motion=self.factor,
            tried=self.tried,
            backend=first.backend,
            congestion=self.up.congestion,
            shortcomings=tuple(self.up.runtime.shortcomings),
            first_step_s=started / 1e9 - began if started else None,
            cell_s=time.monotonic() - began,
        )
        with self.directory.writing():
            self.directory.keep_files(cell.id, OURS)
            self.directory.end(cell.id)
        found = CellResult.of(PlannedCell(cell.id, cell.method, dict(cell.options)), found.stored())
        self.directory.write_json(f"cells/{cell.id}/verdict.json", asdict(found.verdict))
        self.directory.write_json(f"cells/{cell.id}/result.json", found.stored())
        return found


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None
