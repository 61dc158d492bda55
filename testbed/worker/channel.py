"""Rounds of messages over Gloo edges with receives posted one round ahead. Methods get channels from their peer.

Gloo sends only what the receiver has asked for, so a receive posted late costs a round trip. Here each source has two
buffers; the receive of round t+1 is posted before round t is sent, into the buffer that held round t−1.

A peer that is lost (and whose loss the job tolerates) no longer takes part: nothing is sent to it, and `receive`
returns the messages of the others. If it rejoins, both ends count its rounds from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from time import monotonic_ns

import torch
from torch import Tensor
from torch.distributed import Work

from testbed.errors import TrainingError
from testbed.worker.edges import HEADER, Edges
from testbed.worker.staging import Staging
from testbed.worker.trace import CODES
from testbed.worker.transport import Neighbours, by_target
from testbed.worker.waiter import Arrival

_SEND, _RECEIVE, _WAIT = CODES["send"], CODES["receive"], CODES["wait"]


class GlooChannel:
    """A channel of the contract in methods/base.py."""

    def __init__(
        self,
        edges: Edges,
        nbytes: int,
        rounds: Sequence[Neighbours],
        tags: Mapping[tuple[str, int], int],
        connect: Callable[[], None],
    ) -> None:
        self.nbytes = nbytes
        self._edges = edges
        self._rounds = tuple(rounds)
        self._tags = tags  # by ("to" | "from", peer), for even rounds; odd rounds use the next
        self._first: dict[int, int] = {}  # by peer, the round in which it came back
        self._connect = connect
        self._started = False
        self._round = -1  # of the last send
        self._open = False  # sent but not yet received
        self._posted: dict[tuple[int, int], Work] = {}  # by source and parity
        self._arrivals: dict[int, Arrival] = {}
        self._sends: list[tuple[int, Work, int, Tensor]] = []
        self._buffers: dict[tuple[int, int], Tensor] = {}
        device = torch.device(edges.job.device)
        self._staging = Staging(device) if device.type != "cpu" else None

    def start(self) -> None:
        """Post the receives of the first round; the edges are open."""
        self._started = True
        self._post(0)

    def resume(self, peer: int) -> None:
        """Include a peer that has rejoined, from the next round on, over its new edge; no round is under way."""
        if not {("to", peer), ("from", peer)} & self._tags.keys():
            return
        following = self._round + 1
        self._first[peer] = following
        self._arrivals.pop(peer, None)
        for parity in (0, 1):
            self._posted.pop((peer, parity), None)
            self._buffers.pop((peer, parity), None)
        if self._started and peer in self._neighbours(following).sources:
            self._post_one(peer, following)

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        if self._open:
            raise TrainingError("a channel was asked to send before the last round was received", hint=_METHOD)
        neighbours = self._neighbours(self._round + 1)
        gone = self._edges.gone
        if not isinstance(message, Tensor):
            message = {target: one for target, one in message.items() if target not in gone}
        messages = by_target(message, [target for target in neighbours.targets if target not in gone], self.nbytes)
        if not self._started:
            self._connect()
        self._round += 1
        self._open = True
        if self._staging:
            messages = self._staging.to_host(messages)
        self._post(self._round + 1)
        for target, one in messages.items():
            tag = self._tags["to", target] + self._parity(target, self._round)
            started = monotonic_ns()
            if work := self._edges.send(target, one, tag):
                self._sends.append((target, work, started, one))
                self._edges.sent[target] += one.numel()
        for source in neighbours.sources if self._edges.watching else ():
            if source not in gone and (waiter := self._edges[source].waiter):
                self._arrivals[source] = waiter.watch(self._posted[source, self._parity(source, self._round)])

    def receive(self) -> dict[int, Tensor]:
        if not self._open:
            raise TrainingError("a channel was asked to receive before the round was sent", hint=_METHOD)
        trace = self._edges.trace
        sources = self._neighbours(self._round).sources
        gone = self._edges.gone
        begun = start = monotonic_ns()
        for source in sources:
            end = self._wait_for(source, self._parity(source, self._round), begun)
            if source in gone:
                continue
            trace.add(_WAIT, source, start, max(start, end), self.nbytes, self.nbytes + HEADER)
            start = max(start, end)
        for target, work, started, one in self._sends:
            if target not in gone and self._edges.wait(work, target, begun):
                trace.add(_SEND, target, started, monotonic_ns(), one.numel(), one.numel() + HEADER)
        self._sends.clear()
        self._open = False
        living = [source for source in sources if source not in gone]
        received = {source: self._buffers[source, self._parity(source, self._round)] for source in living}
        return self._staging.to_device(received, self._round % 2) if self._staging else received

    @property
    def lost(self) -> Collection[int]:
        return self._edges.gone

    def _wait_for(self, source: int, parity: int, begun: int) -> int:
        """Wait until this source's message is here or the source is gone; return when it came (as far as known)."""
        work = self._posted.pop((source, parity), None)
        arrival = self._arrivals.pop(source, None)
        if work is None or source in self._edges.gone:
            return begun
        if arrival is None:
            self._edges.wait(work, source, begun)
            return monotonic_ns()
        if not arrival.done.wait(self._edges.message_timeout - (monotonic_ns() - begun) / 1e9) or arrival.error:
            self._edges.give_up(source, begun, arrival.error)
            return monotonic_ns()
        self._edges.trace.add(_RECEIVE, source, arrival.since_ns, arrival.at_ns, self.nbytes, self.nbytes + HEADER)
        return arrival.at_ns

    def _neighbours(self, number: int) -> Neighbours:
        return self._rounds[number % len(self._rounds)]

    def _parity(self, peer: int, number: int) -> int:
        return (number - self._first.get(peer, 0)) % 2

    def _post(self, number: int) -> None:
        for source in self._neighbours(number).sources:
            if source not in self._edges.gone:
                self._post_one(source, number)

    def _post_one(self, source: int, number: int) -> None:
        parity = self._parity(source, number)
        buffer = self._buffers.get((source, parity))
        if buffer is None:
            pinned = self._staging is not None
            buffer = self._buffers[source, parity] = torch.empty(self.nbytes, dtype=torch.uint8, pin_memory=pinned)
        if work := self._edges.receive(source, buffer, self._tags["from", source] + parity):
            self._posted[source, parity] = work


_METHOD = "this is an error in the method: send and receive take turns on a channel"
