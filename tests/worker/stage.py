"""Local training in which workers are killed and started again: what the injector does in a run, without a network."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from testbed.methods import make
from testbed.run.rejoin_coordinator import Rejoins
from testbed.topology.gossip import Gossip
from testbed.worker.forked import ForkedWorkers
from testbed.worker.job import Compute, Job, Training
from testbed.worker.loop import run_job
from testbed.worker.lost import Lost, may_lose
from testbed.worker.progress import Board, orders
from testbed.worker.result import JobResult

from .workers import Bowl, make_job, matrices

TICK = 0.003  # seconds
TRAINING = Training(steps=120, lr=0.05, momentum=0.5, eval_every=20, compute=Compute("step_time", 0.006))

Task = Callable[[int, int, int], Any]


@dataclass
class Stage:
    """One training under way, and what a script may do to it."""

    crew: ForkedWorkers[JobResult]
    rejoins: Rejoins
    progress: Board
    lost: Lost
    killed: list[tuple[int, int]] = field(default_factory=list)  # rank, step

    def step(self, rank: int) -> int:
        return self.progress.get(rank).step

    def kill(self, rank: int) -> None:
        self.killed.append((rank, self.step(rank)))
        os.kill(self.crew.pids[rank], signal.SIGKILL)

    def restart(self, rank: int) -> None:
        self.rejoins.request(rank)

    @property
    def returned(self) -> list[int]:
        return [rejoin.rank for rejoin in self.rejoins.done]


Script = Callable[[Stage], bool]  # whether it is through with its next act


@dataclass(frozen=True)
class Ended:
    results: dict[int, JobResult]
    stage: Stage


def play(
    directory: Path,
    spec: Any,
    gossip: Gossip,
    acts: list[Script],
    *,
    training: Training = TRAINING,
    task: Task = Bowl,
    message_timeout: float = 10.0,
    call: Callable[[Job, Any, Task], JobResult] | None = None,
    **options: Any,
) -> Ended:
    """Train, while the acts happen one after the other, each as soon as it can."""
    method, n, begin = make(spec), gossip.size, call or work
    cell = directory / "cell"
    cell.mkdir()
    job = make_job(
        n,
        cell,
        gossip=matrices(gossip.matrices),
        training=training,
        message_timeout=message_timeout,
        tolerant=True,
        progress=str(cell / "progress"),
        **options,
    )
    progress, lost = Board(cell / "progress", orders(cell), n), Lost(cell)
    jobs = [job.for_rank(rank) for rank in range(n)]
    acts = list(acts)
    with ForkedWorkers([partial(begin, job, method, task) for job in jobs], may_lose=may_lose(job)) as crew:

        def restart(rank: int, job: Job) -> None:
            assert crew.restart(rank, partial(begin, job, method, task)) is not None

        stage = Stage(crew, Rejoins(jobs, gossip, progress, lost, restart), progress, lost)
        while not crew.over:
            if acts and acts[0](stage):
                acts.pop(0)
            stage.rejoins.follow()
            living = [stage.step(rank) for rank in range(n) if rank not in lost.ranks()]
            if not living or min(living) >= training.steps:
                stage.rejoins.close()
            crew.wait(TICK)
    results = {result.rank: result for result in crew.results()}
    return Ended(results, stage)


def work(job: Job, method: Any, task: Task) -> JobResult:
    return run_job(job, method=method, task=task(job.rank, job.size, job.seed))


def kill(*ranks: int, at: int) -> Script:
    """As soon as the first worker is in that step."""

    def act(stage: Stage) -> bool:
        if max(stage.step(rank) for rank in range(stage.progress.size)) < at:
            return False
        for rank in ranks:
            stage.kill(rank)
        return True

    return act


def restart(*ranks: int, after: int = 0) -> Script:
    """Once they are dead and somebody else is so many steps further."""

    def act(stage: Stage) -> bool:
        died = {rank: step for rank, step in stage.killed if rank in ranks}
        others = max(stage.step(rank) for rank in range(stage.progress.size) if rank not in ranks)
        if not stage.lost.ranks() >= set(ranks) or others < max(died.values()) + after:
            return False
        for rank in ranks:
            stage.restart(rank)
        return True

    return act


def until(condition: Callable[[Stage], bool]) -> Script:
    return condition
