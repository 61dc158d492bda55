"""Naively compressed D-PSGD, the negative baseline of Tang et al. 2018, arXiv 1803.06443 (figure 1).

    x_i ← Σ_j w_ij C(x_j) − η d_i(x_i)          own model through C too
    x_i ← w_ii x_i + Σ_{j≠i} w_ij C(x_j) − …    with exact_self

C compresses the whole model, so every step injects noise of the size of the model's own compression error: neither the
mean nor consensus on the right value is kept. It fails visibly with 4 bits or fewer, or with low gradient noise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from testbed.compressors.base import Compressor, option
from testbed.compressors.options import flag
from testbed.methods import combinations
from testbed.methods.base import Method, Peer
from testbed.methods.mixing import Rounds, descend, exchange, rounds
from testbed.methods.options import COMPRESSOR, made, overlap_option
from testbed.methods.stream import Stream
from testbed.topology.gossip import Gossip


@dataclass
class State:
    """No memory between steps."""

    stream: Stream
    rounds: Rounds


@dataclass(frozen=True)
class Naive(Method):
    """D-PSGD that sends C(x): shows why differences must be compressed."""

    name = "naive"
    paper = "Tang et al. 2018, arXiv 1803.06443 (its negative example)"
    form = "A"
    survives = True

    compressor: Compressor = field(default_factory=made({"quantize": "8bit"}), metadata=COMPRESSOR)
    exact_self: bool = option(False, help="the own model is mixed uncompressed", parse=flag)
    overlap: bool = overlap_option()

    @property
    def overlaps(self) -> bool:
        return self.overlap

    def init(self, peer: Peer) -> State:
        stream = Stream.of(self.compressor, peer)
        return State(stream, rounds(peer, stream.codec.nbytes))

    def step(self, peer: Peer, state: State) -> None:
        now = state.rounds.at(peer.step)
        message = state.stream.encode(peer, peer.x)
        direction, messages = exchange(peer, now, message, overlap=self.overlap)
        with peer.span("decompress"):
            if self.exact_self:
                peer.x.mul_(now.own)
            else:
                peer.x.zero_()
                state.stream.add(message, peer.x, now.own)
            for j, weight in now.weights.items():
                state.stream.add(messages[j], peer.x, weight)
        descend(peer, direction)

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        state.rounds.join(others)

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        return ["naive compresses whole models: its error does not vanish; it is here to be beaten"]
