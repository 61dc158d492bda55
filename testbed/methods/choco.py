"""CHOCO-SGD, gossip on compressed public copies: Koloskova et al. 2019, arXiv 1902.00340 (ICML) and 1907.09356 (ICLR).

x̂_i is the public copy of x_i that all neighbours could rebuild, s_i = Σ_{j∈N(i)∪{i}} w_ij x̂_j: three vectors whatever
the degree. Both start at 0. Kept is not s_i but the gap s_i − x̂_i, which is all that is used: rounding errors of s_i
are of the model's size and stay for ever, those of the gap are of the size of what travels.

order "iclr" (the exchange overlaps the gradient)      order "icml" (gradient first)
    q_i = C(x_i − x̂_i)  → neighbours                       x_i ← x_i − η d_i(x_i)
    d_i = d_i(x_i) meanwhile                                q_i = C(x_i − x̂_i)  → neighbours
    x̂_i += dec(q_i);  s_i += Σ_j w_ij dec(q_j)             x̂_i += dec(q_i);  s_i += Σ_j w_ij dec(q_j)
    x_i ← x_i − η d_i                                       x_i ← x_i + γ (s_i − x̂_i)
    x_i ← x_i + γ (s_i − x̂_i)

The ICLR paper's loop opens with the mixing line; with x̂ = s = 0 its first mixing does nothing, so ending the loop with
it is the same sequence and leaves the mixed model in x when a step is over. Any C that contracts converges for a small
enough γ, and the mean is always kept. Symptom of a γ too large: loss and consensus distance grow after a good start.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from testbed.compressors.base import Compressor, option
from testbed.compressors.options import choice
from testbed.methods import combinations, tune
from testbed.methods.base import Method, Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.methods.mixing import Round, descend, exchange, rounds, row
from testbed.methods.options import COMPRESSOR, made, overlap_option, tuned_gamma_option
from testbed.methods.stream import Stream
from testbed.topology.gossip import Gossip


@dataclass
class State:
    """The own public copy, and how far the mean of all copies in reach is from it."""

    stream: Stream
    hat: Tensor  # x̂_i
    gap: Tensor  # s_i − x̂_i
    gamma: float
    neighbours: Round
    difference: Tensor = field(metadata=TRANSIENT)
    copies: dict[int, Tensor] = field(default_factory=dict)  # x̂_j by rank, only where neighbours may be lost


@dataclass(frozen=True)
class Choco(Method):
    """Send compressed corrections of a public copy; mix the copies with a damped step γ."""

    name = "choco"
    paper = "Koloskova et al. 2019, arXiv 1907.09356 (iclr) and 1902.00340 (icml)"
    forms = "A (iclr) or B (icml)"
    survives = True

    compressor: Compressor = field(default_factory=made("sign"), metadata=COMPRESSOR)
    gamma: float | Literal["auto"] = tuned_gamma_option()
    order: Literal["iclr", "icml"] = option(
        "iclr",
        help="iclr: the exchange overlaps the gradient; icml: gradient first, stable up to a larger γ",
        parse=choice("iclr", "icml"),
    )
    overlap: bool = overlap_option()

    @property
    def form(self) -> str:
        return "A" if self.order == "iclr" else "B"

    @property
    def overlaps(self) -> bool:
        return self.overlap and self.order == "iclr"

    def init(self, peer: Peer) -> State:
        gamma = tune.for_all(peer, "choco", self.compressor) if self.gamma == "auto" else self.gamma
        stream = Stream.of(self.compressor, peer)
        (neighbours,) = rounds(peer, stream.codec.nbytes)
        hat, gap, difference = torch.zeros_like(peer.x), torch.zeros_like(peer.x), torch.empty_like(peer.x)
        copies = {j: torch.zeros_like(peer.x) for j in neighbours.weights} if peer.tolerant else {}
        return State(stream, hat, gap, gamma, neighbours, difference, copies)

    def step(self, peer: Peer, state: State) -> None:
        if self.order == "icml":
            descend(peer, peer.direction())
            message = self._correction(peer, state)
            state.neighbours.channel.send(message)
            self._update_own(peer, state, message)
            messages = state.neighbours.receive()
            self._forget_lost(peer, state)
            self._update_sum(peer, state, messages)
        else:
            message = self._correction(peer, state)
            direction, messages = exchange(peer, state.neighbours, message, overlap=self.overlap)
            self._forget_lost(peer, state)
            self._update_own(peer, state, message)
            self._update_sum(peer, state, messages)
            descend(peer, direction)
        with peer.span("mix"):
            peer.x.add_(state.gap, alpha=state.gamma)

    def _correction(self, peer: Peer, state: State) -> Tensor:
        """q_i = C(x_i − x̂_i)."""
        return state.stream.encode(peer, torch.sub(peer.x, state.hat, out=state.difference))

    def _update_own(self, peer: Peer, state: State, own: Tensor) -> None:
        """x̂_i += dec(q_i); s_i += w_ii dec(q_i), so the gap changes by (w_ii − 1) dec(q_i)."""
        with peer.span("decompress"):
            state.stream.add(own, state.hat)
            state.stream.add(own, state.gap, state.neighbours.own - 1.0)

    def _update_sum(self, peer: Peer, state: State, messages: Mapping[int, Tensor]) -> None:
        """s_i += Σ_{j≠i} w_ij dec(q_j)."""
        with peer.span("decompress"):
            for j, weight in state.neighbours.weights.items():
                state.stream.add(messages[j], state.gap, weight)
            for j, copy in state.copies.items():
                state.stream.add(messages[j], copy)

    def _forget_lost(self, peer: Peer, state: State) -> None:
        """w_ij of a lost neighbour is one's own now, in what was summed before too: s_i += w_ij (x̂_i − x̂_j). All
        that live do the same, so their mean is still kept."""
        for j in state.copies.keys() - state.neighbours.weights.keys():
            weight = row(peer.gossip, peer.step, peer.rank)[j]
            state.gap.add_(state.hat, alpha=weight).sub_(state.copies.pop(j), alpha=weight)

    def public(self, peer: Peer, state: State) -> Tensor:
        return state.hat

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        """s_i − x̂_i = Σ_j w_ij (x̂_j − x̂_i), summed anew from the copies."""
        self._forget_lost(peer, state)
        state.neighbours.join(others)
        for j in others:
            state.copies[j] = known[j].clone()
        state.gap.zero_()
        for j, weight in state.neighbours.weights.items():
            state.gap.add_(torch.sub(state.copies[j], state.hat, out=state.difference), alpha=weight)

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        combinations.need_static(self.name, gossip, "s_i sums the copies of fixed neighbours with fixed weights")
        combinations.need_tunable(self.name, self.compressor, self.gamma)
        return [
            *combinations.symmetric_wanted(self.name, gossip),
            *combinations.contraction_needed(self.name, self.compressor),
        ]

    def decided(self, state: State) -> dict[str, float]:
        return {"gamma": state.gamma}
