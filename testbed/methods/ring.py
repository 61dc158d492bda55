"""Ring all-reduce over pre-posted messages: the same mean as `allreduce`, made as well as this transport can.
Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".

n shards travel around the ring: in n−1 rounds each gathers every worker's part (reduce-scatter), in n−1 more its sum is
handed to all (all-gather); 2(n−1)/n of the model leave each worker. The sum of a shard is made in one place after the
other along the ring and then copied, so it is bit-identical on every worker.

The direction is cut into `segments`, each with a ring of its own; every second one runs backwards. Both directions of
each link are used, and while one segment's message travels another's is sent: a round costs the longer of latency and
transmission instead of their sum. Small models use fewer segments: below `SMALLEST` a message is all latency.

A channel asks for its next message one round ahead. Where links differ that is not enough: a worker behind a long link
would ask so late that every round waited for that link's round trip. So a ring takes turns over `AHEAD` channels.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.compressors.base import option
from testbed.compressors.options import whole
from testbed.methods.base import Channel, Method, Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.methods.shards import Shard, shards

SMALLEST = 4096  # floats in a message
AHEAD = 8  # rounds; each holds two messages' memory


@dataclass(frozen=True)
class Segment:
    """A ring of its own for a part of the flat buffer."""

    shards: tuple[Shard, ...]
    channels: tuple[Channel, ...]  # round by round
    forward: int  # +1 or −1: which neighbour it sends to

    def outgoing(self, rank: int, hop: int) -> Shard:
        """The shard that `rank` hands on in this round, 0 … 2(n−1)−1; it received it in the round before."""
        return self.shards[(rank - self.forward * hop) % len(self.shards)]

    def channel(self, hop: int) -> Channel:
        return self.channels[hop % len(self.channels)]


@dataclass
class State:
    """The rings and the buffer they sum in."""

    segments: tuple[Segment, ...]
    total: Tensor = field(metadata=TRANSIENT)


@dataclass(frozen=True)
class Ring(Method):
    """A well-made all-reduce of the flat direction."""

    name = "ring"
    paper = "Patarasuk and Yuan 2009 (ring all-reduce), pre-posted and in both directions"
    form = "all-reduce"
    pipelined = True

    segments: int = option(4, help="rings that run at the same time, half of them backwards", parse=whole(1))

    def init(self, peer: Peer) -> State:
        total = torch.zeros(max(peer.x.numel(), peer.size), device=peer.x.device)  # no shard is empty
        count = max(1, min(self.segments, total.numel() // (SMALLEST * peer.size)))
        parts = shards(0, total.numel(), count) if peer.size > 1 else ()
        return State(tuple(_segment(peer, part, 1 - 2 * (index % 2)) for index, part in enumerate(parts)), total)

    def step(self, peer: Peer, state: State) -> None:
        state.total[: peer.x.numel()] = peer.direction()
        for segment in state.segments:
            segment.channel(0).send(segment.outgoing(peer.rank, 0).of(state.total).view(torch.uint8))
        hops = 2 * (peer.size - 1)
        for hop in range(hops):
            for segment in state.segments:
                (message,) = segment.channel(hop).receive().values()
                with peer.span("mix"):
                    shard = segment.outgoing(peer.rank, hop + 1).of(state.total)
                    arrived = message.view(torch.float32)[: shard.numel()]
                    if hop < peer.size - 1:
                        shard.add_(arrived)
                    else:
                        shard.copy_(arrived)
                if hop + 1 < hops:
                    segment.channel(hop + 1).send(shard.view(torch.uint8))
        with peer.span("update"):
            peer.x.add_(state.total[: peer.x.numel()], alpha=-peer.lr / peer.size)


def _segment(peer: Peer, part: Shard, forward: int) -> Segment:
    parts = shards(part.start, part.stop, peer.size)
    channels = tuple(
        peer.channel(
            4 * max(shard.stop - shard.start for shard in parts),
            targets=[(peer.rank + forward) % peer.size],
            sources=[(peer.rank - forward) % peer.size],
        )
        for _ in range(min(AHEAD, 2 * (peer.size - 1)))
    )
    return Segment(parts, channels, forward)
