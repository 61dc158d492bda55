"""Stochastic gradient push, gossip on directed graphs: Assran et al. 2019, "Stochastic Gradient Push for Distributed
Deep Learning", arXiv 1811.10792.

P is column-stochastic: worker j shares out all it has, p_ij of it to i. u_i is the numerator, w_i the push-sum weight
(1 at the start), z_i = u_i/w_i the model that is trained and evaluated. Order B, SGP (gradient first):
    u_i ← u_i − η d_i(z_i);   u_i ← Σ_j p_ij u_j;   w_i ← Σ_j p_ij w_j;   z_i = u_i/w_i
Order A, overlap SGP (messages travel beside the gradient):
    u_i ← Σ_j p_ij u_j − η d_i(z_i);   w_i ← Σ_j p_ij w_j;   z_i = u_i/w_i
The step on the numerator is η whatever w_i is. Σ_i w_i = n and Σ_i u_i are kept, so all z_i tend to the mean although
rows of P do not sum to 1. Kept is z, from which u = w z: one number of state. Messages are z_j and w_j; where P is
doubly stochastic w stays 1 and is not sent, and SGP is D-PSGD of the same order.

When a worker is lost, whoever sent to it keeps that share: only what the lost worker itself had is gone. Then even a
doubly stochastic P has rows that do not sum to 1, so where workers may be lost w travels on every graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from testbed.compressors.base import option
from testbed.compressors.options import choice
from testbed.methods.base import Method, Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.methods.mixing import Round, Rounds, exchange, rounds
from testbed.methods.options import overlap_option


@dataclass
class State:
    """The push-sum weight."""

    rounds: Rounds
    weight: float  # w_i
    message: Tensor = field(metadata=TRANSIENT)  # z_i and, where it travels, w_i


@dataclass(frozen=True)
class SGP(Method):
    """Push shares of the model along one-way edges; a weight that is pushed alike undoes the bias."""

    name = "sgp"
    paper = "Assran et al. 2019, arXiv 1811.10792"
    forms = "B, or A (overlap SGP)"
    survives = True

    order: Literal["A", "B"] = option(
        "B", help="B: gradient first (SGP); A: gossip and gradient overlap (overlap SGP)", parse=choice("A", "B")
    )
    overlap: bool = overlap_option()

    @property
    def form(self) -> str:
        return self.order

    @property
    def overlaps(self) -> bool:
        return self.overlap and self.order == "A"

    def init(self, peer: Peer) -> State:
        weighted = peer.gossip.kind == "column" or peer.tolerant
        message = torch.empty(peer.x.numel() + weighted, device=peer.x.device)
        return State(rounds(peer, message.nbytes, push=True), 1.0, message)

    def step(self, peer: Peer, state: State) -> None:
        now = state.rounds.at(peer.step)
        if self.order == "B":
            _descend(peer, state, peer.direction())
            now.channel.send(_packed(peer, state))
            _mix(peer, state, now, now.receive())
            return
        direction, messages = exchange(peer, now, _packed(peer, state), overlap=self.overlap)
        _mix(peer, state, now, messages)
        _descend(peer, state, direction)

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        """Who was away begins with the weight 1: as much as workers have on average."""
        state.rounds.join(others)


def _descend(peer: Peer, state: State, direction: Tensor) -> None:
    """u ← u − η d, that is z ← z − (η/w) d."""
    with peer.span("update"):
        peer.x.add_(direction, alpha=-peer.lr / state.weight)


def _packed(peer: Peer, state: State) -> Tensor:
    d = peer.x.numel()
    state.message[:d] = peer.x
    state.message[d:] = state.weight
    return state.message.view(torch.uint8)


def _mix(peer: Peer, state: State, now: Round, messages: Mapping[int, Tensor]) -> None:
    """w ← Σ_j p_ij w_j;  z ← Σ_j p_ij w_j z_j / w."""
    d = peer.x.numel()
    arrived = {j: messages[j].view(torch.float32) for j in now.weights}
    weighted = len(state.message) > d
    shares = {j: p * float(arrived[j][d]) if weighted else p for j, p in now.weights.items()}
    own = now.kept * state.weight
    total = float(np.float32(own + sum(shares.values()))) if weighted else 1.0  # as it will travel
    with peer.span("mix"):
        peer.x.mul_(own / total)
        for j, share in shares.items():
            peer.x.add_(arrived[j][:d], alpha=share / total)
    state.weight = total
