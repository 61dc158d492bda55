"""EF-signSGD, error-feedback compression of the directions with an all-gather: Karimireddy et al. 2019, "Error Feedback
Fixes SignSGD and other Gradient Compression Schemes", arXiv 1901.09847.

    p_i = d_i + e_i
    c_i = C(p_i)  → all workers                 C(p) = (‖p‖₁/d) sign(p), layer by layer
    e_i ← p_i − dec(c_i)
    x   ← x − η (1/n) Σ_j dec(c_j)

Everybody decodes the same bytes in the same order, the own ones too, so all models stay equal. Direct messages: n−1
leave and n−1 reach each worker in one round. Any contracting compressor may take the sign's place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from testbed.compressors.base import Compressor
from testbed.methods import combinations
from testbed.methods.base import Channel, Method, Peer
from testbed.methods.options import COMPRESSOR, made
from testbed.methods.stream import Stream
from testbed.topology.gossip import Gossip


@dataclass
class State:
    """What compression has cut off so far."""

    stream: Stream
    error: Tensor  # e_i
    channel: Channel


@dataclass(frozen=True)
class EFSign(Method):
    """All workers get everybody's signs; what they lose is added to the next direction."""

    name = "ef_sign"
    paper = "Karimireddy et al. 2019, arXiv 1901.09847"
    form = "all-reduce"

    compressor: Compressor = field(default_factory=made("sign"), metadata=COMPRESSOR)

    def init(self, peer: Peer) -> State:
        stream = Stream.of(self.compressor, peer)
        others = [j for j in range(peer.size) if j != peer.rank]
        channel = peer.channel(stream.codec.nbytes, targets=others, sources=others)
        return State(stream, torch.zeros_like(peer.x), channel)

    def step(self, peer: Peer, state: State) -> None:
        state.error.add_(peer.direction())  # now p_i
        message = state.stream.encode(peer, state.error)
        state.channel.send(message)
        with peer.span("decompress"):
            state.stream.add(message, state.error, -1.0)
        messages = {**state.channel.receive(), peer.rank: message}
        with peer.span("decompress"):
            for j in range(peer.size):
                state.stream.add(messages[j], peer.x, -peer.lr / peer.size)

    def check(self, gossip: Gossip) -> list[str]:
        return combinations.contraction_needed(self.name, self.compressor)
