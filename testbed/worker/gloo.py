"""The transport over Gloo: real TCP messages on the emulated network, CPU tensors (a GPU's are staged). The default."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributed as dist

from testbed.methods.base import Channel
from testbed.worker.channel import GlooChannel
from testbed.worker.edges import HEADER, Edges
from testbed.worker.job import Job
from testbed.worker.trace import CODES, Trace
from testbed.worker.transport import ALL, Neighbours, PeerLostError, Transport, ring_share

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

SWAP = 1 << 20  # tag of messages beside the channels, which count theirs from 0


class GlooTransport(Transport):
    """Edges to the peers really used, and channels over them."""

    def __init__(self, job: Job, trace: Trace) -> None:
        self.rank = job.rank
        self.size = job.size
        self._trace = trace
        self._edges = Edges(job, trace)
        self.sent = self._edges.sent
        self._tags: dict[tuple[str, int], int] = {}  # the next free one, by direction and peer
        self._waiting: list[tuple[GlooChannel, set[int]]] = []  # channels whose edges may not be open yet
        self._channels: list[GlooChannel] = []

    @property
    def message_timeout(self) -> float:
        return self._edges.message_timeout

    @message_timeout.setter
    def message_timeout(self, seconds: float) -> None:
        self._edges.set_deadline(seconds)

    @property
    def paced(self) -> dict[int, float | None]:
        return self._edges.pacing.rates

    def channel(self, nbytes: int, rounds: Sequence[Neighbours]) -> Channel:
        """Open a channel. Both ends number the channels of an edge and direction alike, so the same order is enough."""
        ends = {("to", p) for r in rounds for p in r.targets} | {("from", p) for r in rounds for p in r.sources}
        tags = {end: self._tags.get(end, 0) for end in ends}
        self._tags.update({end: tag + 2 for end, tag in tags.items()})
        channel = GlooChannel(self._edges, nbytes, rounds, tags, self.connect)
        self._waiting.append((channel, {peer for _, peer in ends}))
        self._channels.append(channel)
        return channel

    def connect(self) -> None:
        self._edges.open(peer for _, peers in self._waiting for peer in peers if peer not in self._edges.gone)
        for channel, _ in self._waiting:
            channel.start()
        self._waiting.clear()

    def connect_all(self) -> None:
        dist.all_reduce(torch.zeros(1), group=self._edges.all())  # a lazy group connects when first used

    def all_reduce(self, tensor: Tensor) -> None:
        group = self._edges.all()
        share = ring_share(tensor.nbytes, self.size)
        start = monotonic_ns()
        work = dist.all_reduce(tensor, group=group, async_op=True)
        assert work is not None  # this worker is a member of the group
        self._edges.wait(work, ALL, start)
        self.sent[ALL] += share
        self._trace.add(CODES["wait"], ALL, start, monotonic_ns(), tensor.nbytes, share)

    def process_group(self) -> ProcessGroup:
        return self._edges.all()

    def reason(self, error: RuntimeError, since_ns: int) -> RuntimeError | PeerLostError:
        return self._edges.lost(ALL, since_ns) if "gloo" in str(error) else error

    def leave_out(self, peers: Collection[int]) -> None:
        self._edges.gone.update(peers)

    def reopen(self, peers: Sequence[int], rendezvous: str) -> None:
        self._edges.reopen(peers, rendezvous)

    def living(self, peers: Collection[int]) -> list[int]:
        return sorted(set(peers) - self._edges.gone)

    def swap(self, outgoing: Mapping[int, Tensor], incoming: Mapping[int, Tensor]) -> None:
        edges, begun = self._edges, monotonic_ns()
        receives = {peer: edges.receive(peer, buffer, SWAP) for peer, buffer in incoming.items()}
        sends = {peer: edges.send(peer, message, SWAP) for peer, message in outgoing.items()}
        for peer, work in sends.items():
            if work and edges.wait(work, peer, begun):
                count = outgoing[peer].numel()
                self.sent[peer] += count
                self._trace.add(CODES["send"], peer, begun, monotonic_ns(), count, count + HEADER)
        for peer, work in receives.items():
            if work and edges.wait(work, peer, begun):
                count = incoming[peer].numel()
                self._trace.add(CODES["wait"], peer, begun, monotonic_ns(), count, count + HEADER)

    def resume(self, peers: Collection[int]) -> None:
        for channel in self._channels:
            for peer in self.living(peers):
                channel.resume(peer)

    def leave(self) -> None:
        self._edges.close()
