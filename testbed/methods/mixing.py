"""One worker's view of the gossip graph: in each round a channel, its own weight and its sources' weights.

Gossip methods ask for their rounds in `init` and exchange through them in `step`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from testbed.methods.base import Channel, Peer
from testbed.topology.gossip import Gossip


@dataclass(frozen=True)
class Round:
    """One row of a mixing matrix and the channel its messages come through."""

    channel: Channel
    weights: dict[int, float]  # w_ij by source j, in rank order: the order of every sum; only of those that live
    planned: Mapping[int, float]  # of all of them

    @property
    def own(self) -> float:
        """w_ii: what is left of 1. It absorbs the others' rounding to fp32: three times fp32(1/3) exceeds 1, and a row
        that does would let all models grow a little with every step."""
        return 1.0 - sum(self.weights.values())

    def receive(self) -> Mapping[int, Tensor]:
        """This round's messages. Who is lost is left out from now on: its weight is one's own, so a symmetric W stays
        doubly stochastic among those that live, and their mean is kept."""
        messages = self.channel.receive()
        for j in self.weights.keys() - messages.keys():
            del self.weights[j]
        return messages

    def join(self, others: Collection[int]) -> None:
        """These are back: their weights are as planned, and the own one too."""
        living = {*self.weights, *others}
        self.weights.clear()
        self.weights.update({j: weight for j, weight in self.planned.items() if j in living})


def rounds(peer: Peer, nbytes: int, gamma: float = 1.0) -> tuple[Round, ...]:
    """One round per mixing matrix of the cycle, of W itself or of I + γ(W − I)."""
    made = []
    for index in range(len(peer.gossip.matrices)):
        planned = row(peer.gossip, index, peer.rank, gamma)
        targets = peer.gossip.targets(index, peer.rank)
        weights = {j: weight for j, weight in planned.items() if j not in peer.absent}
        made.append(Round(peer.channel(nbytes, targets=targets, sources=tuple(planned)), weights, planned))
    return tuple(made)


def row(gossip: Gossip, step: int, rank: int, gamma: float = 1.0) -> dict[int, float]:
    """{j: w_ij} of I + γ(W − I), rounded to fp32 as the sums will be."""
    return {j: float(np.float32(gamma * gossip.weight(step, rank, j))) for j in gossip.sources(step, rank)}


def exchange(
    peer: Peer, now: Round, message: Tensor | Mapping[int, Tensor], *, overlap: bool
) -> tuple[Tensor, Mapping[int, Tensor]]:
    """Send, take the direction at x while the messages travel (or, without overlap, before), and receive."""
    if overlap:
        now.channel.send(message)
        return peer.direction(), now.receive()
    direction = peer.direction()
    now.channel.send(message)
    return direction, now.receive()


def descend(peer: Peer, direction: Tensor) -> None:
    """x ← x − η d."""
    with peer.span("update"):
        peer.x.add_(direction, alpha=-peer.lr)
