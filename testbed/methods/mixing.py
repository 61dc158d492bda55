"""One worker's view of the gossip graph: in each round a channel, its own weight and its sources' weights.

Gossip methods ask for their rounds in `init` and exchange through them in `step`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from testbed.methods import combinations
from testbed.methods.base import Channel, Peer
from testbed.topology.gossip import Gossip


@dataclass(frozen=True)
class Round:
    """One row and one column of a mixing matrix and the channel its messages come and go through."""

    channel: Channel
    weights: dict[int, float]  # w_ij by source j, in rank order: the order of every sum; only of those that live
    planned: Mapping[int, float]  # of all of them
    shares: dict[int, float]  # w_ji by target j, likewise
    shares_planned: Mapping[int, float]

    @property
    def own(self) -> float:
        """w_ii: what is left of 1. It absorbs the others' rounding to fp32: three times fp32(1/3) exceeds 1, and a row
        that does would let all models grow a little with every step."""
        return 1.0 - sum(self.weights.values())

    @property
    def kept(self) -> float:
        """w_ii where columns must sum to 1: what is left after sharing out. The share of a lost target stays here, so
        nothing is lost but what that worker had. Equal to `own` where W is symmetric."""
        return 1.0 - sum(self.shares.values())

    def receive(self) -> Mapping[int, Tensor]:
        """This round's messages. Who is lost is left out from now on: its weight is one's own, so a symmetric W stays
        doubly stochastic among those that live, and their mean is kept."""
        messages = self.channel.receive()
        for j in self.weights.keys() - messages.keys():
            del self.weights[j]
        for j in self.shares.keys() & set(self.channel.lost):
            del self.shares[j]
        return messages

    def join(self, others: Collection[int]) -> None:
        """These are back: their weights are as planned, and the own one too."""
        for now, planned in ((self.weights, self.planned), (self.shares, self.shares_planned)):
            living = {*now, *others}
            now.clear()
            now.update({j: weight for j, weight in planned.items() if j in living})


@dataclass(frozen=True)
class Rounds:
    """All rounds of a gossip graph: one per matrix of its cycle, or one per partner where pairs are drawn."""

    gossip: Gossip
    rank: int
    made: Mapping[Any, Round]  # by the cycle's index, or by whom a round is with

    def at(self, step: int) -> Round:
        if self.gossip.drawn is not None:
            return self.made[self.gossip.sources(step, self.rank)]
        return self.made[step % len(self.made)]

    def __getitem__(self, index: int) -> Round:
        """As in the tuple that this was, for methods of users' own that index it with step % len(rounds)."""
        return self.at(index)

    def __iter__(self) -> Iterator[Round]:
        return iter(self.made.values())

    def __len__(self) -> int:
        return len(self.made)

    def join(self, others: Collection[int]) -> None:
        """These are back."""
        for each in self:
            each.join(others)


def rounds(peer: Peer, nbytes: int, gamma: float = 1.0, *, push: bool = False) -> Rounds:
    """One round per mixing matrix, of W itself or of I + γ(W − I). Only who corrects for rows that do not sum to 1
    (`push`) may mix with a matrix that is merely column-stochastic.

    Where pairs are drawn, each pair has a channel of its own, whose rounds are the steps in which the two meet: both
    ends draw alike, and a receive is posted long before the meeting.
    """
    gossip, rank = peer.gossip, peer.rank
    if not push:
        combinations.need_doubly_stochastic("a method that takes means", gossip)
    if gossip.drawn is not None:
        half = float(np.float32(gamma / 2))
        nobody: list[tuple[int, ...]] = [()] if peer.size % 2 else []
        partners = [*nobody, *((j,) for j in range(peer.size) if j != rank)]
        halves = {who: dict.fromkeys(who, half) for who in partners}
        return Rounds(gossip, rank, {who: _round(peer, nbytes, halves[who], halves[who]) for who in partners})
    made = {}
    for index in range(len(gossip.matrices)):
        made[index] = _round(peer, nbytes, row(gossip, index, rank, gamma), column(gossip, index, rank, gamma))
    return Rounds(gossip, rank, made)


def _round(peer: Peer, nbytes: int, planned: Mapping[int, float], shares: Mapping[int, float]) -> Round:
    weights, living = ({j: w for j, w in each.items() if j not in peer.absent} for each in (planned, shares))
    channel = peer.channel(nbytes, targets=tuple(shares), sources=tuple(planned))
    return Round(channel, weights, planned, living, shares)


def row(gossip: Gossip, step: int, rank: int, gamma: float = 1.0) -> dict[int, float]:
    """{j: w_ij} of I + γ(W − I), rounded to fp32 as the sums will be."""
    return {j: float(np.float32(gamma * gossip.weight(step, rank, j))) for j in gossip.sources(step, rank)}


def column(gossip: Gossip, step: int, rank: int, gamma: float = 1.0) -> dict[int, float]:
    """{j: w_ji} of I + γ(W − I): what each target takes of `rank`, rounded as it will be there."""
    return {j: float(np.float32(gamma * gossip.weight(step, j, rank))) for j in gossip.targets(step, rank)}


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
