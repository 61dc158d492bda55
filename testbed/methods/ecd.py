"""ECD-PSGD, extrapolation compression: Tang et al. 2018, "Communication Compression for Decentralized Training",
arXiv 1803.06443, algorithm 2. t counts from 1.

    x_i⁺ = Σ_{j∈N(i)∪{i}} w_ij y_j − η d_i(x_i)
    z_i  = (1 − t/2) x_i + (t/2) x_i⁺
    c_i  = C(z_i)  → neighbours
    y_j  ← (1 − 2/t) y_j + (2/t) dec(c_j)             for j ∈ N(i) ∪ {i}
    x_i  ← x_i⁺

y_j estimates x_j, the own one included. ‖z‖ grows like t/2 times the last move, so the theory needs a C whose error is
bounded absolutely. Every quantizer whose error is proportional to ‖z‖ (min-max, QSGD, sign, top-k) makes the estimates
worse with t instead of better: that is the algorithm, not a bug of this file. Overlap as in DCD: x_{t+1} is known
before the messages travel.
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
    """Estimates of the own and the neighbours' models."""

    stream: Stream
    own: Tensor  # y_i
    estimates: dict[int, Tensor]  # y_j by rank
    neighbours: Round
    following: Tensor = field(metadata=TRANSIENT)  # x⁺
    t: int = 1
    pending: bool = False  # c_t was sent, the neighbours' c_t not yet received


@dataclass(frozen=True)
class ECD(Method):
    """Send compressed extrapolations; running averages of them estimate the neighbours' models."""

    name = "ecd"
    paper = "Tang et al. 2018, arXiv 1803.06443, alg. 2"
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
        estimates = {j: peer.x.clone() for j in neighbours.weights}
        return State(stream, peer.x.clone(), estimates, neighbours, torch.empty_like(peer.x))

    def step(self, peer: Peer, state: State) -> None:
        direction = peer.direction()
        self.finish(peer, state)
        with peer.span("mix"):
            following = torch.mul(state.own, state.neighbours.own, out=state.following)
            for j, weight in state.neighbours.weights.items():
                following.add_(state.estimates[j], alpha=weight)
            following.add_(direction, alpha=-peer.lr)
            z = peer.x.lerp_(following, state.t / 2)  # in the place of x, which becomes x⁺ below
        message = state.stream.encode(peer, z)
        with peer.span("decompress"):
            _extrapolate(state, state.own, message)
            peer.x.copy_(following)
        state.neighbours.channel.send(message)
        state.pending = True
        if not self.overlap:
            self.finish(peer, state)

    def finish(self, peer: Peer, state: State) -> None:
        """The living neighbours' estimates of this t; then t moves on."""
        if not state.pending:
            return
        messages = state.neighbours.receive()
        with peer.span("decompress"):
            for j in state.neighbours.weights:
                _extrapolate(state, state.estimates[j], messages[j])
        state.t += 1
        state.pending = False

    def public(self, peer: Peer, state: State) -> Tensor:
        return state.own

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        """All estimates of a worker are of the same t, also those of one that begins anew."""
        state.neighbours.join(others)
        for j in others:
            state.estimates[j] = known[j].clone()
        state.t = peer.step + 1

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        combinations.need_static(self.name, gossip, "each worker keeps estimates of fixed neighbours")
        return [
            *combinations.symmetric_wanted(self.name, gossip),
            *combinations.unbiased_needed(self.name, self.compressor),
            *combinations.absolute_error_needed(self.name, self.compressor),
        ]


def _extrapolate(state: State, estimate: Tensor, message: Tensor) -> None:
    """y ← (1 − 2/t) y + (2/t) dec(c), all coordinates scaled whatever the message holds."""
    estimate.mul_(1 - 2 / state.t)
    state.stream.add(message, estimate, 2 / state.t)
