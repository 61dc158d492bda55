"""PowerGossip, low-rank gossip on the edges: Vogels et al. 2020, "Practical Low-Rank Communication Compression in
Decentralized Deep Learning", arXiv 2008.01425.

Each edge {lo, hi} (by rank) and each matrix M (shape[0], rest) has p and q, equal at both ends. D = M_hi − M_lo.
Iteration τ = 1, 2, … :
    odd:   q̂ = orth(q);  u = M q̂    → other end;   p ← u_hi − u_lo (= D q̂);   D̂ = p q̂ᵀ
    even:  p̂ = orth(p);  u = Mᵀ p̂   → other end;   q ← u_hi − u_lo (= Dᵀ p̂);  D̂ = p̂ qᵀ
    hi:    M ← M − γ w_ij D̂          lo:  M ← M + γ w_ij D̂
then x ← x − η d, d taken at x before any gossip (order A). The iterations of one step are gossip rounds one after the
other, each a network round trip; the first one's overlaps the gradient. Tensors of one dimension travel uncompressed in
the first iteration's message and are mixed with the same γ.

No γ to tune: 1 is stable, 2/((1−λ2)+(1−λn)) is fastest. The mean is kept. Where the ends do not differ, D q̂ = 0 would
leave nothing to orthonormalise for ever: such rows are drawn anew from the edge's random numbers, at both ends alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

from testbed.compressors.base import option
from testbed.compressors.options import flag, whole
from testbed.methods import combinations
from testbed.methods.base import Method, Peer
from testbed.methods.checkpoint import TRANSIENT
from testbed.methods.matrices import Matrices, batches, vectors
from testbed.methods.mixing import Round, descend, exchange, rounds
from testbed.methods.options import gamma_option, overlap_option
from testbed.methods.orthonormal import orthonormalise
from testbed.seeds import derive
from testbed.topology.gossip import Gossip


@dataclass
class Edge:
    """This end of one edge: p and q of every batch, each (count, rank, length), a vector in each row."""

    p: tuple[Tensor, ...]
    q: tuple[Tensor, ...]
    seed: int = field(metadata=TRANSIENT)  # the same at both ends
    sign: float = field(metadata=TRANSIENT)  # own − other = sign · (hi − lo)
    outbox: Tensor = field(metadata=TRANSIENT)  # the message, as floats


@dataclass
class State:
    """What each edge knows about the difference of its ends, and how many iterations there were."""

    edges: dict[int, Edge]  # by the rank of the other end, in rank order
    neighbours: Round  # of I + γ(W − I)
    batches: tuple[Matrices, ...]
    vectors: Tensor = field(metadata=TRANSIENT)  # indices of all that is in no matrix
    tau: int = 0


@dataclass(frozen=True)
class PowerGossip(Method):
    """One power iteration per edge and round on the difference of the two models."""

    name = "powergossip"
    paper = "Vogels et al. 2020, arXiv 2008.01425"
    form = "A"

    rank: int = option(1, help="of each correction; more bytes, faster consensus", parse=whole(1))
    iterations: int = option(1, help="gossip rounds per step; each costs a round trip on the network", parse=whole(1))
    warm_start: bool = option(True, help="go on from the last p and q; off draws anew each time", parse=flag)
    gamma: float = gamma_option()
    overlap: bool = overlap_option()

    @property
    def overlaps(self) -> bool:
        return self.overlap

    def init(self, peer: Peer) -> State:
        matrices, small = batches(peer.layout), vectors(peer.layout).to(peer.x.device)
        longest = max(sum(map(prod, self._shapes(matrices, odd))) for odd in (True, False))
        floats = longest + small.numel()
        (neighbours,) = rounds(peer, 4 * floats, self.gamma)
        edges = {other: self._edge(peer, other, matrices, floats) for other in neighbours.weights}
        return State(edges, neighbours, matrices, small)

    def _edge(self, peer: Peer, other: int, matrices: tuple[Matrices, ...], floats: int) -> Edge:
        lo, hi = sorted((peer.rank, other))
        seed = derive(peer.seed, "powergossip", lo, hi)
        p, q = (
            tuple(_normal(shape, derive(seed, side, index)).to(peer.x.device) for index, shape in enumerate(shapes))
            for side, shapes in (("p", self._shapes(matrices, odd=True)), ("q", self._shapes(matrices, odd=False)))
        )
        return Edge(p, q, seed, 1.0 if peer.rank == hi else -1.0, torch.empty(floats, device=peer.x.device))

    def _shapes(self, matrices: tuple[Matrices, ...], odd: bool) -> list[tuple[int, int, int]]:
        """Of what an iteration sends about each batch: p-like vectors in odd iterations, q-like ones in even."""
        return [
            (batch.count, min(self.rank, batch.rows, batch.columns), batch.rows if odd else batch.columns)
            for batch in matrices
        ]

    def step(self, peer: Peer, state: State) -> None:
        if not state.edges:
            descend(peer, peer.direction())
            return
        inputs = self._project(peer, state)
        messages_out = self._pack(peer, state, with_vectors=True)
        direction, messages = exchange(peer, state.neighbours.channel, messages_out, overlap=self.overlap)
        self._mix(peer, state, inputs, messages)
        self._mix_vectors(peer, state, messages)
        for _ in range(1, self.iterations if state.batches else 1):
            inputs = self._project(peer, state)
            state.neighbours.channel.send(self._pack(peer, state, with_vectors=False))
            self._mix(peer, state, inputs, state.neighbours.channel.receive())
        descend(peer, direction)

    def _project(self, peer: Peer, state: State) -> list[Tensor]:
        """u of every edge into its outbox. Gives, by batch, the orthonormal inputs of all edges as rows: one product
        serves all edges, and all see the same M."""
        state.tau += 1
        odd = state.tau % 2 == 1
        with peer.span("compress"):
            edges = state.edges.values()
            inputs = [
                torch.cat([self._input(peer, edge, index, state.tau) for edge in edges], dim=1)
                for index in range(len(state.batches))
            ]
            pieces = [_pieces(edge.outbox, self._shapes(state.batches, odd)) for edge in edges]
            for index, (batch, V) in enumerate(zip(state.batches, inputs, strict=True)):
                M = batch.of(peer.x)
                U = torch.bmm(V, M.mT if odd else M)
                for mine, u in zip(pieces, U.chunk(len(pieces), dim=1), strict=True):
                    mine[index].copy_(u)
        return inputs

    def _input(self, peer: Peer, edge: Edge, index: int, tau: int) -> Tensor:
        """orth(q) or orth(p), in place."""
        v = (edge.q if tau % 2 == 1 else edge.p)[index]
        if not self.warm_start:
            v.copy_(_normal(v.shape, derive(edge.seed, tau, index)))
        orthonormalise(v, lambda: _normal(v.shape, derive(edge.seed, "anew", tau, index)).to(v.device))
        return v

    def _pack(self, peer: Peer, state: State, *, with_vectors: bool) -> dict[int, Tensor]:
        """Each edge's message: what `_project` left in the outbox and, if asked for, the vectors behind it."""
        end = self._matrix_floats(state)
        if with_vectors:
            small, start, end = peer.x[state.vectors], end, end + state.vectors.numel()
            for edge in state.edges.values():
                edge.outbox[start:end] = small
        return {other: edge.outbox[:end].view(torch.uint8) for other, edge in state.edges.items()}

    def _mix(self, peer: Peer, state: State, inputs: list[Tensor], messages: Mapping[int, Tensor]) -> None:
        """p ← u_hi − u_lo (or q), and M ← M ∓ γ w D̂ for all edges in one product."""
        odd = state.tau % 2 == 1
        shapes = self._shapes(state.batches, odd)
        with peer.span("mix"):
            scaled: list[list[Tensor]] = [[] for _ in shapes]
            for other, edge in state.edges.items():
                own, others = _pieces(edge.outbox, shapes), _pieces(messages[other].view(torch.float32), shapes)
                weight = state.neighbours.weights[other] * edge.sign
                for index, output in enumerate(edge.p if odd else edge.q):
                    torch.sub(own[index], others[index], out=output).mul_(edge.sign)
                    scaled[index].append(output * weight)
            for batch, V, parts in zip(state.batches, inputs, scaled, strict=True):
                U = torch.cat(parts, dim=1)
                batch.of(peer.x).baddbmm_(*((U.mT, V) if odd else (V.mT, U)), alpha=-1)

    def _mix_vectors(self, peer: Peer, state: State, messages: Mapping[int, Tensor]) -> None:
        """Plain gossip of what is no matrix."""
        start, count = self._matrix_floats(state), state.vectors.numel()
        with peer.span("mix"):
            mixed = peer.x[state.vectors].mul_(state.neighbours.own)
            for other, weight in state.neighbours.weights.items():
                mixed.add_(messages[other].view(torch.float32)[start : start + count], alpha=weight)
            peer.x[state.vectors] = mixed

    def _matrix_floats(self, state: State) -> int:
        return sum(map(prod, self._shapes(state.batches, odd=state.tau % 2 == 1)))

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_static(self.name, gossip, "each edge keeps its own p and q")
        combinations.need_symmetric(self.name, gossip, "both ends of an edge apply the same correction")
        return []


def _normal(shape: Sequence[int], seed: int) -> Tensor:
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed))


def _pieces(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Consecutive tensors of these shapes at the start of a flat one, as views."""
    sizes = [prod(shape) for shape in shapes]
    parts = torch.split(flat[: sum(sizes)], sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
