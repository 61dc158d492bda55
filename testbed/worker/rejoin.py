"""A worker rejoins a running cell: its own part and that of its neighbours. The training loop calls both.

The controller (run/rejoin_coordinator.py) proposes a step; at its beginning the neighbours and the one that comes back
meet, all exchanges complete. New connections are made, and over them, on the emulated network, travels what is needed:
    one neighbour → newcomer    its model (and a module's buffers)
    each neighbour → newcomer   what its neighbours know of it (x̂), where the method keeps replicas
    newcomer → each neighbour   what they shall know of it: what is known of the neighbour whose model it has
Both ends then begin the edge anew (`Method.join`), and W is as planned again. Momentum begins at 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import sleep
from typing import Any

import torch
from torch import Tensor

from testbed.errors import TrainingError
from testbed.methods.base import Method
from testbed.tasks.base import Task
from testbed.worker.clock import Clock
from testbed.worker.control import FileControl
from testbed.worker.job import Job
from testbed.worker.peer import WorkerPeer
from testbed.worker.progress import Answer, Notice, Phase, Progress
from testbed.worker.transport import LeftBehindError, Reuniting, Transport

DECIDED = "decided"  # the note that says what the method chose at the start
POLL = 0.001  # seconds; a worker that waits here makes others wait
MEETING = 3600.0  # seconds to wait for a message during a rejoin: neighbours may have to wait for others


@dataclass
class Parts:
    """The parts of a worker that a rejoin uses."""

    job: Job
    method: Method
    task: Task
    transport: Transport
    peer: WorkerPeer
    clock: Clock
    progress: Progress

    @property
    def reuniting(self) -> Reuniting:
        if isinstance(self.transport, Reuniting):
            return self.transport
        raise TrainingError(f"workers cannot come back with {self.job.backend}", hint="use backend: gloo")


class Neighbourhood:
    """Lets neighbours rejoin: called before every step."""

    def __init__(self, parts: Parts, state: Any, seen: int = 0) -> None:
        self._parts, self._state = parts, state
        self._neighbours = parts.peer.gossip.neighbours(parts.peer.rank)
        self._seen = seen  # the number of the last notice that was read
        self._meeting: Notice | None = None  # agreed to

    def before(self, step: int) -> None:
        """Meet a worker that rejoins before this step, if there is one."""
        progress = self._parts.progress
        while progress.notice_number != self._seen or (self._meeting and self._meeting.step == step):
            notice = progress.notice()
            if notice.number != self._seen:
                self._take_note(notice, step)
            elif self._meeting and self._meeting.step == step:
                self._wait(notice.number)

    def _take_note(self, notice: Notice, step: int) -> None:
        """Agree to a meeting that can still be kept; if not, the controller sees how far this worker is."""
        job = self._parts.job
        self._seen = notice.number
        waiting = notice.phase in (Phase.PROPOSED, Phase.GO)
        self._parts.transport.message_timeout = max(job.message_timeout, MEETING) if waiting else job.message_timeout
        if notice.phase == Phase.GO:
            if self._meeting and job.rank in self._parts.progress.present(notice.number):
                self._welcome(notice)
            self._meeting = None
            return
        concerned = notice.phase == Phase.PROPOSED and notice.rank in self._neighbours
        self._meeting = notice if concerned and step <= notice.step else None
        if self._meeting:
            self._answer(agreed=notice.number)

    def _wait(self, number: int) -> None:
        """Wait at the meeting for the controller's next notice."""
        parts = self._parts
        parts.method.finish(parts.peer, self._state)
        self._answer(here=number)
        with parts.peer.span("rejoin"):
            while parts.progress.notice_number == number:
                sleep(POLL)

    def _welcome(self, notice: Notice) -> None:
        """Take the worker back at this end. One that dies in the middle of it was never here."""
        parts, newcomer, here = self._parts, notice.rank, self._parts.job.rank
        parts.transport.message_timeout = parts.job.message_timeout
        transport, donor = parts.reuniting, parts.progress.present(notice.number)[0]
        known: dict[int, Tensor] = {}
        with parts.peer.span("rejoin"):
            public = parts.method.public(parts.peer, self._state)
            transport.reopen([newcomer], rendezvous(parts.job, newcomer, notice.life))
            if transport.living([newcomer]) and (given := _given(parts, public, donor=here == donor)):
                transport.swap({newcomer: _packed(given)}, {})
            if public is not None and here == donor:
                known[newcomer] = public
            elif public is not None and transport.living([newcomer]):
                theirs = torch.empty(public.nbytes, dtype=torch.uint8)
                transport.swap({}, {newcomer: theirs})
                known[newcomer] = theirs.view(public.dtype).to(public.device)
            if transport.living([newcomer]):
                parts.method.join(parts.peer, self._state, [newcomer], known)
                transport.resume([newcomer])
        parts.transport.message_timeout = max(parts.job.message_timeout, MEETING)  # others may still be busy with it
        self._answer(done=notice.number)

    def _answer(self, **said: int) -> None:
        progress, rank = self._parts.progress, self._parts.job.rank
        progress.put_answer(rank, replace(progress.answer(rank), **said))


@dataclass(frozen=True)
class Back:
    """The state of a worker that has rejoined."""

    method: Method  # with what the others had decided
    state: Any
    step: int  # the next one
    notice: int  # the number of the one by which it came back
    standing_ns: int  # how long the others' training clock has stood still


def come_back(parts: Parts, control: FileControl) -> Back:
    """Wait to be taken back, then meet all living neighbours. LeftBehindError where that fails."""
    job, peer, transport = parts.job, parts.peer, parts.reuniting
    method = replace(parts.method, **json.loads(control.noted(DECIDED)))
    parts.progress.put_answer(job.rank, Answer(ready=job.life))
    notice = _taken_back(job, parts.progress)
    present = parts.progress.present(notice.number)
    donor, others = present[0], present[1:]
    peer.absent = peer.gossip.neighbours(peer.rank) - set(present)
    transport.leave_out(peer.absent)
    peer.begin(notice.step)
    with peer.span("rejoin"):
        transport.reopen(present, rendezvous(job, job.rank, job.life))
        _all_there(job, transport, present)
        state = method.init(peer)
        public, standing = method.public(peer, state), torch.zeros(1, dtype=torch.int64)
        slots = {donor: _model(parts, public, standing)}
        if public is not None:
            slots |= {other: [torch.empty_like(public)] for other in others}
        messages = {other: torch.empty(_nbytes(places), dtype=torch.uint8) for other, places in slots.items()}
        transport.swap({}, messages)
        _all_there(job, transport, present)
        for other, places in slots.items():
            _unpack(messages[other], places)
        known: dict[int, Tensor] = {}
        if public is not None:
            known = {donor: public, **{other: slots[other][0] for other in others}}
            transport.swap(dict.fromkeys(others, _packed([public])), {})
            _all_there(job, transport, present)
        method.join(peer, state, present, known)
        parts.transport.connect()
    parts.transport.message_timeout = max(job.message_timeout, MEETING)  # until all are through
    moved = sum(message.numel() for message in messages.values()) + sum(parts.transport.sent.values())
    parts.progress.put_answer(job.rank, Answer(ready=job.life, done=notice.number, nbytes=moved))
    return Back(method, state, notice.step, notice.number, int(standing))


def rendezvous(job: Job, newcomer: int, life: int) -> str:
    """Return a separate file for every rejoin: what a dying worker leaves in one does not matter to the next."""
    return f"{job.rendezvous}.{newcomer}.{life}"


def _taken_back(job: Job, progress: Progress) -> Notice:
    """Wait for the notice to rejoin; the controller also says so if it will not happen."""
    while True:
        notice = progress.notice()
        if notice.phase == Phase.GO and (notice.rank, notice.life) == (job.rank, job.life):
            return notice
        if notice.phase == Phase.CLOSED or progress.refused(job.rank) == job.life:
            raise _left_behind("started again, but too late to rejoin")
        sleep(POLL)


def _all_there(job: Job, transport: Reuniting, present: Sequence[int]) -> None:
    if missing := sorted(set(present) - set(transport.living(present))):
        names = ", ".join(map(job.name_of, missing))
        raise _left_behind(f"started again, but could not rejoin: {names} died meanwhile")


def _given(parts: Parts, public: Tensor | None, *, donor: bool) -> list[Tensor]:
    """Return what a neighbour sends to the rejoining worker."""
    if donor:
        return _model(parts, public, torch.tensor([parts.clock.standing_ns]))
    return [] if public is None else [public]


def _model(parts: Parts, public: Tensor | None, standing: Tensor) -> list[Tensor]:
    """Return what the rejoining worker takes over from one neighbour: sent from there, and written to here."""
    buffers = list(parts.task.module.buffers()) if parts.task.module is not None else []
    return [standing, parts.peer.x, *buffers, *([] if public is None or public is parts.peer.x else [public])]


def _nbytes(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) for tensor in tensors])


def _unpack(message: Tensor, places: Sequence[Tensor]) -> None:
    parts = torch.split(message, [place.nbytes for place in places])
    for place, part in zip(places, parts, strict=True):
        place.copy_(part.clone().view(place.dtype).view(place.shape))  # a view alone could lie askew in memory


def _left_behind(why: str) -> LeftBehindError:
    return LeftBehindError(why, why=why)
