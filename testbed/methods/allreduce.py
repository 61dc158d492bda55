"""All-reduce SGD: every worker steps down the mean of all directions, so all models stay equal.

Without a compressor: one stock all-reduce of the flat direction, what most users have today.
    x ← x − η (1/n) Σ_j d_j
With one: the two-round compressed all-reduce (ByteGrad in Gan et al. 2021, "BAGUA", arXiv 2107.01499). Worker k owns
shard k:
    1. every worker sends C(d_i[k]) to each owner k;      m_k = (1/n) (d_k[k] + Σ_{i≠k} dec(C(d_i[k])))
    2. every owner sends c_k = C(m_k) to all;              x[k] ← x[k] − η dec(c_k), on the owner too
Two message rounds instead of 2(n−1): a strong baseline where latency is high. The direction includes local momentum;
momentum is linear, so its mean is the momentum of the mean gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.compressors.base import Compressor
from testbed.errors import TrainingError
from testbed.methods import combinations
from testbed.methods.base import Channel, Method, Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.methods.options import COMPRESSOR
from testbed.methods.shards import Shard, shards
from testbed.methods.stream import Stream
from testbed.topology.gossip import Gossip


@dataclass
class Flat:
    """State of the stock all-reduce: a buffer it may overwrite."""

    total: Tensor = field(metadata=TRANSIENT)


@dataclass
class TwoRounds:
    """State of the compressed all-reduce."""

    to_owner: dict[int, Stream]  # by owner: this worker's part of the owner's mean
    of_mean: dict[int, Stream]  # by owner; the own one encodes, the others only decode
    shards: tuple[Shard, ...]  # by owner
    scatter: Channel
    gather: Channel
    mean: Tensor = field(metadata=TRANSIENT)  # of the own shard


@dataclass(frozen=True)
class AllReduce(Method):
    """The mean direction of all workers, through the backend or, compressed, in two rounds of direct messages."""

    name = "allreduce"
    paper = "stock all-reduce; with a compressor: Gan et al. 2021, arXiv 2107.01499 (ByteGrad)"
    form = "all-reduce"

    compressor: Compressor | None = field(default=None, metadata=COMPRESSOR)

    def init(self, peer: Peer) -> Flat | TwoRounds:
        if self.compressor is None:
            return Flat(torch.empty_like(peer.x))
        if peer.x.numel() < peer.size:
            raise TrainingError(
                f"{peer.x.numel()} parameters cannot be shared out among {peer.size} workers",
                hint="use allreduce without a compressor for so small a model",
            )
        parts = shards(0, peer.x.numel(), peer.size)
        layouts = [shard.layout(peer.layout) for shard in parts]
        others = [k for k in range(peer.size) if k != peer.rank]
        of_mean = {k: Stream.of(self.compressor, peer, layouts[k], "mean") for k in range(peer.size)}
        longest = max(stream.codec.nbytes for stream in of_mean.values())
        return TwoRounds(
            {k: Stream.of(self.compressor, peer, layouts[k], f"shard {k}") for k in others},
            of_mean,
            parts,
            scatter=peer.channel(longest, targets=others, sources=others),
            gather=peer.channel(longest, targets=others, sources=others),
            mean=torch.empty_like(parts[peer.rank].of(peer.x)),
        )

    def step(self, peer: Peer, state: Flat | TwoRounds) -> None:
        direction = peer.direction()
        if isinstance(state, TwoRounds):
            _two_rounds(peer, state, direction)
            return
        state.total.copy_(direction)
        peer.all_reduce(state.total)
        with peer.span("update"):
            peer.x.add_(state.total, alpha=-peer.lr / peer.size)

    def check(self, gossip: Gossip) -> list[str]:
        return combinations.unbiased_needed(self.name, self.compressor) if self.compressor else []


def _two_rounds(peer: Peer, state: TwoRounds, direction: Tensor) -> None:
    state.scatter.send({k: stream.encode(peer, state.shards[k].of(direction)) for k, stream in state.to_owner.items()})
    own = state.of_mean[peer.rank]
    torch.div(state.shards[peer.rank].of(direction), peer.size, out=state.mean)
    parts = state.scatter.receive()
    with peer.span("decompress"):
        for k in state.to_owner:
            own.add(parts[k], state.mean, 1.0 / peer.size)
    message = own.encode(peer, state.mean)
    state.gather.send(message)
    means = {**state.gather.receive(), peer.rank: message}
    with peer.span("decompress"):
        for k, shard in enumerate(state.shards):
            state.of_mean[k].add(means[k], shard.of(peer.x), -peer.lr)
