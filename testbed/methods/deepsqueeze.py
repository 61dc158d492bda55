"""DeepSqueeze, error-compensated gossip: Tang et al. 2019, "DeepSqueeze: Decentralization Meets Error-Compensated
Compression", arXiv 1907.07346, algorithm 1. Order B: gradient first, then the exchange; nothing overlaps.

    x_i½ = x_i − η d_i(x_i)
    v_i  = x_i½ + δ_i
    c_i  = C(v_i)  → neighbours
    δ_i  ← v_i − dec(c_i)
    x_i  ← x_i½ + γ [Σ_{j≠i} w_ij dec(c_j) − (1 − w_ii) dec(c_i)]

No state per neighbour, so the graph may change every step; the mean is kept by any C. It compresses whole models: the
noise does not vanish, and γ must shrink with compression (sign: .01–.05). Symptom of a γ too large: the models'
distance from their mean stops falling early, or grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from testbed.compressors.base import Compressor
from testbed.methods import combinations, tune
from testbed.methods.base import Method, Peer
from testbed.methods.mixing import Rounds, descend, rounds
from testbed.methods.options import COMPRESSOR, made, tuned_gamma_option
from testbed.methods.stream import Stream
from testbed.topology.gossip import Gossip


@dataclass
class State:
    """The compression error carried to the next step."""

    stream: Stream
    delta: Tensor  # δ_i
    gamma: float
    rounds: Rounds


@dataclass(frozen=True)
class DeepSqueeze(Method):
    """Send the compressed model plus what earlier compressions lost."""

    name = "deepsqueeze"
    paper = "Tang et al. 2019, arXiv 1907.07346, alg. 1"
    form = "B"
    survives = True

    compressor: Compressor = field(default_factory=made("sign"), metadata=COMPRESSOR)
    gamma: float | Literal["auto"] = tuned_gamma_option()

    def init(self, peer: Peer) -> State:
        gamma = tune.for_all(peer, "deepsqueeze", self.compressor) if self.gamma == "auto" else self.gamma
        stream = Stream.of(self.compressor, peer)
        return State(stream, torch.zeros_like(peer.x), gamma, rounds(peer, stream.codec.nbytes, gamma))

    def step(self, peer: Peer, state: State) -> None:
        now = state.rounds.at(peer.step)
        own = now.own
        descend(peer, peer.direction())
        state.delta.add_(peer.x)  # now v_i
        message = state.stream.encode(peer, state.delta)
        now.channel.send(message)
        with peer.span("decompress"):
            state.stream.add(message, state.delta, -1.0)
            state.stream.add(message, peer.x, own - 1.0)
        messages = now.receive()
        with peer.span("decompress"):
            if now.own != own:  # a neighbour was lost: its weight is one's own
                state.stream.add(message, peer.x, now.own - own)
            for j, weight in now.weights.items():
                state.stream.add(messages[j], peer.x, weight)

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        """The δ of who was away is lost with it, and begins at 0."""
        state.rounds.join(others)

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        combinations.need_tunable(self.name, self.compressor, self.gamma)
        return combinations.contraction_needed(self.name, self.compressor)

    def decided(self, state: State) -> dict[str, float]:
        return {"gamma": state.gamma}
