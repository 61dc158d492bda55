"""DCD-PSGD, difference compression: Tang et al. 2018, "Communication Compression for Decentralized Training",
arXiv 1803.06443, algorithm 1.

    h_i  = Σ_{j∈N(i)∪{i}} w_ij x̂_j − η d_i(x_i)      x̂_i ≡ x_i
    z_i  = h_i − x_i
    c_i  = C(z_i)  → neighbours
    x_i  ← x_i + dec(c_i)
    x̂_j ← x̂_j + dec(c_j)                            for j ∈ N(i)

Every worker keeps a replica x̂_j of each neighbour, bit-identical to the owner's x_j, from equal models at the start.
x_{t+1} is known as soon as c_t is packed: with overlap c_t travels while the gradient at x_{t+1} is computed, so an
exchange stays under way between two steps (`finish` completes it). The theory wants an unbiased C with relative error
α < ρ/(2β). The mean is not kept: compression noise enters it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.compressors.base import Compressor
from testbed.methods import combinations
from testbed.methods.base import Method, Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.methods.mixing import Round, rounds
from testbed.methods.options import COMPRESSOR, made, overlap_option
from testbed.methods.stream import Stream
from testbed.topology.gossip import Gossip


@dataclass
class State:
    """Replicas of the neighbours' models."""

    stream: Stream
    replicas: dict[int, Tensor]  # x̂_j by rank
    neighbours: Round
    z: Tensor = field(metadata=TRANSIENT)
    pending: bool = False  # c_t was sent, the neighbours' c_t not yet received


@dataclass(frozen=True)
class DCD(Method):
    """Send compressed differences of the model; everybody follows the same compressed trajectory."""

    name = "dcd"
    paper = "Tang et al. 2018, arXiv 1803.06443, alg. 1"
    form = "A"
    survives = True

    compressor: Compressor = field(default_factory=made({"quantize": "8bit"}), metadata=COMPRESSOR)
    overlap: bool = overlap_option()

    @property
    def overlaps(self) -> bool:
        return self.overlap

    def init(self, peer: Peer) -> State:
        stream = Stream.of(self.compressor, peer)
        (neighbours,) = rounds(peer, stream.codec.nbytes)
        replicas = {j: peer.x.clone() for j in neighbours.weights}
        return State(stream, replicas, neighbours, torch.empty_like(peer.x))

    def step(self, peer: Peer, state: State) -> None:
        direction = peer.direction()
        self.finish(peer, state)
        with peer.span("mix"):
            z = torch.mul(peer.x, state.neighbours.own - 1.0, out=state.z)
            for j, weight in state.neighbours.weights.items():
                z.add_(state.replicas[j], alpha=weight)
            z.add_(direction, alpha=-peer.lr)
        message = state.stream.encode(peer, z)
        with peer.span("decompress"):
            state.stream.add(message, peer.x)
        state.neighbours.channel.send(message)
        state.pending = True
        if not self.overlap:
            self.finish(peer, state)

    def finish(self, peer: Peer, state: State) -> None:
        """x̂_j ← x̂_j + dec(c_j) of the neighbours that live."""
        if not state.pending:
            return
        messages = state.neighbours.receive()
        with peer.span("decompress"):
            for j in state.neighbours.weights:
                state.stream.add(messages[j], state.replicas[j])
        state.pending = False

    def public(self, peer: Peer, state: State) -> Tensor:
        """x̂_i ≡ x_i."""
        return peer.x

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        state.neighbours.join(others)
        for j in others:
            state.replicas[j] = known[j].clone()

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        combinations.need_static(self.name, gossip, "each worker keeps replicas of fixed neighbours")
        return [
            *combinations.symmetric_wanted(self.name, gossip),
            *combinations.unbiased_needed(self.name, self.compressor),
            *combinations.dcd_bound(self.compressor, gossip),
        ]
