"""Low-rank approximation by a warm-started power iteration."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.compressors.arrays import read, write
from testbed.compressors.base import Codec, Compressor, option
from testbed.compressors.options import whole
from testbed.flat import Layout, Slot
from testbed.seeds import derive

# fp32 products of such matrices neither overflow nor vanish; others are handled in fp64
_SMALLEST, _LARGEST = 1e-15, 1e12


@dataclass(frozen=True)
class LowRank(Compressor):
    """One step of subspace iteration per message on every tensor with more than one dimension, taken as an m×n matrix M
    of its first dimension by the rest:

        P = orth(M·Q),  Q ← Mᵀ·P,  C(M) = P·Qᵀ = P·Pᵀ·M

    with r = min(rank, m, n) columns. Q stays with the sender as the start of the next step, so a slowly changing M is
    tracked as by an SVD. Biased; a projection, so it never increases the norm. Vectors are sent as they are. Being made
    of matrix products, the bytes are reproducible for an equal number of threads (workers have one).

    Wire: P (m×r fp32, row by row) of every matrix ‖ Q (n×r fp32) of every matrix ‖ other tensors fp32.
    """

    name = "lowrank"
    paper = "Vogels et al. 2019, arXiv 1905.13727"
    short = "rank"

    rank: int = option(
        1,
        parse=whole(1),
        help="columns of the factors: the message grows with it. If the loss lags behind dpsgd per step, double it",
    )
    iterations: int = option(
        1,
        parse=whole(1),
        help="power iterations per message: costs time, no bytes. If the values change so fast that the warm start is"
        " of no use (the error stays near that of a random projection), take 2",
    )

    def bind(self, layout: Layout, seed: int) -> LowRankCodec:
        return LowRankCodec(self, layout, seed)


@dataclass(frozen=True)
class _Matrix:
    """A tensor seen as a matrix, and where its factors lie in the message."""

    slot: Slot
    rows: int
    columns: int
    rank: int
    at_p: int
    at_q: int

    def of(self, flat: Tensor) -> Tensor:
        return flat[self.slot.start : self.slot.stop].view(self.rows, self.columns)


class LowRankCodec(Codec):
    def __init__(self, options: LowRank, layout: Layout, seed: int) -> None:
        self.matrices: list[_Matrix] = []
        folded = [slot for slot in layout.slots if len(slot.shape) > 1 and slot.numel]
        self.vectors = [slot for slot in layout.slots if len(slot.shape) <= 1]
        at_p = 0
        at_q = sum(4 * slot.shape[0] * _rank(slot, options.rank) for slot in folded)
        for slot in folded:
            rows, columns, rank = slot.shape[0], slot.numel // slot.shape[0], _rank(slot, options.rank)
            self.matrices.append(_Matrix(slot, rows, columns, rank, at_p, at_q))
            at_p += 4 * rows * rank
            at_q += 4 * columns * rank
        self.at_vectors = at_q
        super().__init__(layout, at_q + 4 * sum(slot.numel for slot in self.vectors))
        self.iterations = options.iterations
        self.seed = seed
        self.q: dict[str, Tensor] = {}  # by tensor: the start of its next iteration

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        self.check_finite(x, step)
        for matrix in self.matrices:
            M = matrix.of(x)
            low, high = torch.aminmax(M)
            if not _SMALLEST < max(-float(low), float(high)) < _LARGEST:
                M = M.to(torch.float64)
            Q = self._start(matrix, M)
            for _ in range(self.iterations):
                P = torch.linalg.qr(M @ self._scaled(Q, matrix, step)).Q
                Q = M.t() @ P
            if Q.dtype == torch.float64:
                limit = torch.finfo(torch.float32).max
                P, Q = P.to(torch.float32), Q.clamp(-limit, limit).to(torch.float32)
            self.q[matrix.slot.name] = Q
            write(message, matrix.at_p, P)
            write(message, matrix.at_q, Q)
        at = self.at_vectors
        for slot in self.vectors:
            at = write(message, at, x[slot.start : slot.stop])
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        for matrix in self.matrices:
            P = read(message, matrix.at_p, matrix.rows * matrix.rank, torch.float32).view(matrix.rows, matrix.rank)
            Q = read(message, matrix.at_q, matrix.columns * matrix.rank, torch.float32).view(-1, matrix.rank)
            matrix.of(dest).addmm_(P, Q.t(), alpha=weight)
        at = self.at_vectors
        for slot in self.vectors:
            values = read(message, at, slot.numel, torch.float32)
            dest[slot.start : slot.stop] += values if weight == 1.0 else values * weight
            at += 4 * slot.numel

    def state(self) -> dict[str, Tensor]:
        return {name: Q.clone() for name, Q in self.q.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.q = {name: Q.clone() for name, Q in state.items()}

    def _start(self, matrix: _Matrix, M: Tensor) -> Tensor:
        """The last Q; zeros at first, which `_scaled` replaces."""
        last = self.q.get(matrix.slot.name)
        return M.new_zeros(matrix.columns, matrix.rank) if last is None else last.to(M)

    def _scaled(self, Q: Tensor, matrix: _Matrix, step: int) -> Tensor:
        """Q with columns of size 1. A zero column (at first, or after a zero M) would stay zero: it is drawn anew."""
        size = Q.abs().amax(dim=0)
        dead = size == 0
        if dead.any():
            generator = torch.Generator().manual_seed(derive(self.seed, "noise", step, matrix.slot.name))
            fresh = torch.randn(Q.shape, generator=generator).to(Q)
            Q, size = torch.where(dead, fresh, Q), torch.where(dead, torch.ones_like(size), size)
        return Q / size


def _rank(slot: Slot, rank: int) -> int:
    return min(rank, slot.shape[0], slot.numel // slot.shape[0])
