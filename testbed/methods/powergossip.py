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

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
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
    """This end of one edge. p, q and the outbox are flat: the vectors of all batches, one batch after the other."""

    p: Tensor
    q: Tensor
    outbox: Tensor = field(metadata=TRANSIENT)
    sign: float = field(metadata=TRANSIENT)  # own − other = sign · (hi − lo)
    seed: int = field(metadata=TRANSIENT)  # the same at both ends


@dataclass
class State:
    """What each edge knows about the difference of its ends, and how many iterations there were."""

    edges: dict[int, Edge]  # by the rank of the other end, in rank order
    neighbours: Round  # of I + γ(W − I)
    batches: tuple[Matrices, ...]
    vectors: Tensor = field(metadata=TRANSIENT)  # places of all elements that are in no matrix
    tau: int = 0

    @property
    def odd(self) -> bool:
        return self.tau % 2 == 1


@dataclass(frozen=True)
class PowerGossip(Method):
    """One power iteration per edge and round on the difference of the two models."""

    name = "powergossip"
    paper = "Vogels et al. 2020, arXiv 2008.01425"
    form = "A"
    survives = True

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
        longest = self._longest(matrices, small)
        (neighbours,) = rounds(peer, 4 * longest, self.gamma)
        edges = {other: self._edge(peer, other, matrices, longest) for other in neighbours.weights}
        return State(edges, neighbours, matrices, small)

    def _longest(self, matrices: tuple[Matrices, ...], small: Tensor) -> int:
        """Floats of a message."""
        return max(_numel(self._shapes(matrices, side)) for side in "pq") + small.numel()

    def _edge(self, peer: Peer, other: int, matrices: tuple[Matrices, ...], longest: int) -> Edge:
        lo, hi = sorted((peer.rank, other))
        seed = derive(peer.seed, "powergossip", lo, hi)
        p, q = (_normal(_numel(self._shapes(matrices, side)), derive(seed, side)).to(peer.x.device) for side in "pq")
        outbox = torch.empty(longest, device=peer.x.device)
        return Edge(p, q, outbox, sign=1.0 if peer.rank == hi else -1.0, seed=seed)

    def _shapes(self, matrices: tuple[Matrices, ...], side: str) -> list[tuple[int, int, int]]:
        """(count, rank, length) of the vectors p or q of each batch."""
        return [
            (batch.count, min(self.rank, batch.rows, batch.columns), batch.rows if side == "p" else batch.columns)
            for batch in matrices
        ]

    def step(self, peer: Peer, state: State) -> None:
        iterations = self.iterations if state.batches else 1
        state.tau = peer.step * iterations  # also for whoever was alone for a while, or away
        if not state.edges:
            descend(peer, peer.direction())
            return
        neighbours = state.neighbours
        inputs = self._project(peer, state)
        outgoing = self._pack(peer, state, vectors=True)
        direction, messages = exchange(peer, neighbours, outgoing, overlap=self.overlap)
        self._mix(peer, state, inputs, messages)
        self._mix_vectors(peer, state, messages)
        for _ in range(1, iterations):
            if not state.edges:
                break
            inputs = self._project(peer, state)
            neighbours.channel.send(self._pack(peer, state, vectors=False))
            self._mix(peer, state, inputs, neighbours.receive())
        descend(peer, direction)

    def _project(self, peer: Peer, state: State) -> list[Tensor]:
        """u of every edge into its outbox. Gives, by batch, the orthonormal inputs of all edges as rows (count, edges ·
        rank, length): one product serves all edges, and all see the same M."""
        state.tau += 1
        with peer.span("compress"):
            own = [self._inputs(state, edge) for edge in state.edges.values()]
            inputs = [torch.cat(same, dim=1) for same in zip(*own, strict=True)]
            out = self._shapes(state.batches, "p" if state.odd else "q")
            boxes = [_pieces(edge.outbox, out) for edge in state.edges.values()]
            for index, (batch, V) in enumerate(zip(state.batches, inputs, strict=True)):
                M = batch.of(peer.x)
                U = torch.bmm(V, M.mT if state.odd else M)
                for box, u in zip(boxes, U.chunk(len(boxes), dim=1), strict=True):
                    box[index].copy_(u)
        return inputs

    def _inputs(self, state: State, edge: Edge) -> list[Tensor]:
        """orth(q) or orth(p) in place, by batch."""
        flat = edge.q if state.odd else edge.p
        shapes = self._shapes(state.batches, "q" if state.odd else "p")

        def drawn(purpose: str) -> Tensor:
            return _normal(flat.numel(), derive(edge.seed, purpose, state.tau)).to(flat.device)

        def anew(index: int) -> Tensor:
            return _pieces(drawn("anew"), shapes)[index]

        if not self.warm_start:
            flat.copy_(drawn("start"))
        pieces = _pieces(flat, shapes)
        for index, piece in enumerate(pieces):
            orthonormalise(piece, partial(anew, index))
        return pieces

    def _pack(self, peer: Peer, state: State, *, vectors: bool) -> dict[int, Tensor]:
        """Each edge's message: what `_project` left in the outbox and, if asked for, the vectors behind it."""
        end = self._matrix_floats(state)
        if vectors:
            small, start, end = peer.x[state.vectors], end, end + state.vectors.numel()
            for edge in state.edges.values():
                edge.outbox[start:end] = small
        return {other: edge.outbox[:end].view(torch.uint8) for other, edge in state.edges.items()}

    def _mix(self, peer: Peer, state: State, inputs: list[Tensor], messages: Mapping[int, Tensor]) -> None:
        """p ← u_hi − u_lo (or q), and M ← M ∓ γ w D̂ for all edges in one product. Edges to lost neighbours end."""
        shapes = self._shapes(state.batches, "p" if state.odd else "q")
        with peer.span("mix"):
            scaled = []
            for other, edge in state.edges.items():
                output = edge.p if state.odd else edge.q
                if other not in messages:
                    scaled.append(_pieces(torch.zeros_like(output), shapes))
                    continue
                size = output.numel()
                torch.sub(edge.outbox[:size], messages[other].view(torch.float32)[:size], out=output).mul_(edge.sign)
                scaled.append(_pieces(output * (edge.sign * state.neighbours.weights[other]), shapes))
            for batch, V, parts in zip(state.batches, inputs, zip(*scaled, strict=True), strict=True):
                U = torch.cat(parts, dim=1)
                batch.of(peer.x).baddbmm_(*((U.mT, V) if state.odd else (V.mT, U)), alpha=-1)
        for other in state.edges.keys() - messages.keys():
            del state.edges[other]

    def _mix_vectors(self, peer: Peer, state: State, messages: Mapping[int, Tensor]) -> None:
        """Plain gossip of what is no matrix."""
        start, count = self._matrix_floats(state), state.vectors.numel()
        with peer.span("mix"):
            mixed = peer.x[state.vectors].mul_(state.neighbours.own)
            for other, weight in state.neighbours.weights.items():
                mixed.add_(messages[other].view(torch.float32)[start : start + count], alpha=weight)
            peer.x[state.vectors] = mixed

    def _matrix_floats(self, state: State) -> int:
        return _numel(self._shapes(state.batches, "p" if state.odd else "q"))

    def join(self, peer: Peer, state: State, others: Collection[int], known: Mapping[int, Tensor]) -> None:
        """p and q of these edges as at the start."""
        state.neighbours.join(others)
        longest = self._longest(state.batches, state.vectors)
        anew = {other: self._edge(peer, other, state.batches, longest) for other in others}
        edges = {**state.edges, **anew}
        state.edges.clear()
        state.edges.update({other: edges[other] for other in state.neighbours.weights})

    def check(self, gossip: Gossip) -> list[str]:
        combinations.need_doubly_stochastic(self.name, gossip)
        combinations.need_static(self.name, gossip, "each edge keeps its own p and q")
        combinations.need_symmetric(self.name, gossip, "both ends of an edge apply the same correction")
        return []


def _normal(count: int, seed: int) -> Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(seed))


def _numel(shapes: Sequence[tuple[int, ...]]) -> int:
    return sum(map(prod, shapes))


def _pieces(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Consecutive tensors of these shapes at the start of a flat one, as views."""
    sizes = [prod(shape) for shape in shapes]
    parts = torch.split(flat[: sum(sizes)], sizes)
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]
