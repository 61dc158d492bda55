"""Lets killed workers rejoin a running cell: decides which workers meet before which step. The fault injector polls it
while a cell trains; worker/rejoin.py is the workers' side.

One at a time. The neighbours are invited to meet before a step that none of them has begun; if one was quicker, a later
step is proposed. Once all living neighbours are there, they are told to proceed. A worker that dies meanwhile is left
out; if it is the rejoining one, nothing changes. A worker without a living neighbour waits for one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from testbed.topology.gossip import Gossip
from testbed.worker.job import Job
from testbed.worker.lost import Lost
from testbed.worker.progress import Board, Notice, Phase

MARGIN = 2  # steps ahead of the first neighbour; twice as many after every proposal that came too late


@dataclass(frozen=True)
class Rejoin:
    """A worker that has rejoined."""

    rank: int
    life: int
    step: int  # the first it took part in
    source: int  # whose model it took
    nbytes: int  # sent over the network for the rejoin
    at: float  # seconds on the monotonic clock


@dataclass(frozen=True)
class _Meeting:
    """A rejoin under way."""

    notice: Notice  # the latest about it
    margin: int = MARGIN
    present: tuple[int, ...] = ()  # once all were there


class Rejoins:
    """All rejoins of one cell."""

    def __init__(
        self, jobs: Sequence[Job], gossip: Gossip, progress: Board, lost: Lost, restart: Callable[[int, Job], None]
    ) -> None:
        self.done: list[Rejoin] = []
        self._jobs, self._gossip, self._progress, self._lost, self._restart = jobs, gossip, progress, lost, restart
        self._steps = jobs[0].training.steps
        self._lives = [0] * len(jobs)
        self._waiting: list[int] = []  # started again, not yet back
        self._meeting: _Meeting | None = None
        self._number = 0
        self._closed = False

    @property
    def pending(self) -> bool:
        """Whether a worker is rejoining, or was when it died."""
        return bool(self._waiting or self._meeting)

    @property
    def lost(self) -> frozenset[int]:
        """Return the workers that are dead or not yet back, as all others see it."""
        return self._lost.ranks()

    def life(self, rank: int) -> int:
        """Return how often this worker was started again."""
        return self._lives[rank]

    def request(self, rank: int) -> None:
        """Start this dead worker again."""
        self._lives[rank] += 1
        self._waiting.append(rank)
        self._restart(rank, replace(self._jobs[rank], life=self._lives[rank], resume=False))

    def waits(self, rank: int) -> bool:
        """Whether this worker is rejoining."""
        return rank in self._waiting

    def follow(self) -> None:
        """Do whatever can be done now."""
        if self._closed or not self.pending:
            return
        meeting, gone = self._meeting, self._lost.ranks()
        alive = [rank for rank in self._waiting if not self._lost.ended(rank, self._lives[rank])]
        if meeting and meeting.present:
            self._see_through(meeting, gone, alive=meeting.notice.rank in alive)
        elif meeting and meeting.notice.rank not in alive:
            self._end()
        elif meeting:
            self._gather(meeting, gone)
        self._waiting = [rank for rank in self._waiting if rank in alive]
        if self._meeting is None:
            self._invite(gone)

    def close(self) -> None:
        """Tell rejoining workers to give up: training is over, or no worker is left."""
        if not self._closed:
            self._closed = True
            self._say(Notice(phase=Phase.CLOSED))

    def _invite(self, gone: frozenset[int]) -> None:
        """Propose a step to the first worker that is ready and has a living neighbour."""
        for rank in self._waiting:
            ready = self._progress.answer(rank).ready == self._lives[rank]
            if ready and (there := self._neighbours(rank, gone)):
                self._propose(rank, there, MARGIN)
                return

    def _propose(self, rank: int, there: Sequence[int], margin: int) -> None:
        step = max(self._progress.get(other).step for other in there) + margin
        if step >= self._steps:
            self._progress.refuse(rank, self._lives[rank])
            self._end()
            self._waiting.remove(rank)
            return
        notice = self._say(Notice(phase=Phase.PROPOSED, rank=rank, life=self._lives[rank], step=step))
        self._meeting = _Meeting(notice, margin)

    def _gather(self, meeting: _Meeting, gone: frozenset[int]) -> None:
        notice = meeting.notice
        there = self._neighbours(notice.rank, gone)
        answers = {other: self._progress.answer(other) for other in there}
        if not there:
            self._end()
        elif all(answer.here == notice.number for answer in answers.values()):
            self._lost.mark_back(notice.rank, notice.life)
            for other in there:
                self._progress.set_present(other, self._number + 1)
            go = self._say(replace(notice, phase=Phase.GO))
            self._meeting = replace(meeting, notice=go, present=there)
        elif any(
            answer.agreed != notice.number and self._progress.get(other).step >= notice.step
            for other, answer in answers.items()
        ):
            self._propose(notice.rank, there, 2 * meeting.margin)

    def _see_through(self, meeting: _Meeting, gone: frozenset[int], *, alive: bool) -> None:
        """End the meeting once the worker is back or has died, and all that it met have gone on."""
        notice = meeting.notice
        done = {rank for rank in (notice.rank, *meeting.present) if self._progress.answer(rank).done == notice.number}
        if (alive and notice.rank not in done) or not done | gone >= set(meeting.present):
            return
        if notice.rank in done:
            nbytes = self._progress.answer(notice.rank).nbytes
            self.done.append(Rejoin(notice.rank, notice.life, notice.step, meeting.present[0], nbytes, at=monotonic()))
        self._waiting = [rank for rank in self._waiting if rank != notice.rank]
        self._end()

    def _end(self) -> None:
        if self._meeting:
            self._meeting = None
            self._say(Notice())

    def _neighbours(self, rank: int, gone: frozenset[int]) -> tuple[int, ...]:
        """Return the living neighbours; workers that are still rejoining count as lost."""
        return tuple(sorted(self._gossip.neighbours(rank) - gone))

    def _say(self, notice: Notice) -> Notice:
        self._number += 1
        notice = replace(notice, number=self._number)
        self._progress.put_notice(notice)
        return notice
