"""D-PSGD, uncompressed gossip: Lian et al. 2017, "Can Decentralized Algorithms Outperform Centralized Algorithms?",
arXiv 1705.09056.

Order A, the paper's (gradient and gossip both read x_t, so they overlap):
    x_i ← Σ_j w_ij x_j − η d_i(x_i)
Order B (gradient first; nothing overlaps, consensus is tighter):
    x_i ← Σ_j w_ij (x_j − η d_j(x_j))
γ replaces W by I + γ(W − I); 1 is the paper. Momentum is local and never mixed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from testbed.compressors.base import option
from testbed.compressors.options import choice
from testbed.methods import combinations
from testbed.methods.base import Method, Peer
from testbed.methods.mixing import Round, Rounds, descend, exchange, rounds
from testbed.methods.options import gamma_option, overlap_option
from testbed.topology.gossip import Gossip


@dataclass
class State:
    """D-PSGD remembers nothing but who its neighbours are."""

    rounds: Rounds


@dataclass(frozen=True)
class DPSGD(Method):
    """Average the models with the neighbours' and step down the own gradient."""

    name = "dpsgd"
    paper = "Lian et al. 2017, arXiv 1705.09056"
    forms = "A or B"
    survives = True

    order: Literal["A", "B"] = option(
        "A", help="A: gossip and gradient read the same model and overlap; B: gradient first", parse=choice("A", "B")
    )
    gamma: float = gamma_option()
    overlap: bool = overlap_option()

    @property
    def form(self) -> str:
        return self.order

    @property
    def overlaps(self) -> bool:
        return self.overlap and self.order == "A"

    def init(self, peer: Peer) -> State:
        return State(rounds(peer, peer.x.nbytes, self.gamma))

    def step(self, peer: Peer, state: State) -> None:
        now = state.rounds.at(peer.step)
        own_bytes = peer.x.view(torch.uint8)
        if self.order == "B":
            descend(peer, peer.direction())
            now.channel.send(own_bytes)
            _mix(peer, now, now.receive())
            return
        direction, messages = exchange(peer, now, own_bytes, overlap=self.overlap)
        _mix(peer, now, messages)
        descend(peer, direction)

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        state.rounds.join(others)

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        return []


def _mix(peer: Peer, now: Round, messages: Mapping[int, Tensor]) -> None:
    """x ← w_ii x + Σ_j w_ij x_j."""
    with peer.span("mix"):
        peer.x.mul_(now.own)
        for j, weight in now.weights.items():
            peer.x.add_(messages[j].view(torch.float32), alpha=weight)
