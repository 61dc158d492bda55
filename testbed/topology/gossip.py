"""The gossip graph: who averages with whom, with which weights.

One mixing matrix per round, repeated cyclically; a static graph has one. Rows belong to receivers: in round t worker i
computes Σ_j W[i, j] x_j. Every matrix is doubly stochastic, so the workers' mean is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ScenarioError


@dataclass(frozen=True, eq=False)
class Gossip:
    """Mixing matrices of a gossip graph."""

    name: str
    matrices: tuple[NDArray[np.float64], ...]

    @property
    def size(self) -> int:
        return int(self.matrices[0].shape[0])

    @property
    def static(self) -> bool:
        return len(self.matrices) == 1

    @cached_property
    def symmetric(self) -> bool:
        return all(np.allclose(W, W.T) for W in self.matrices)

    def matrix(self, step: int) -> NDArray[np.float64]:
        return self.matrices[step % len(self.matrices)]

    def weight(self, step: int, receiver: int, sender: int) -> float:
        return float(self.matrix(step)[receiver, sender])

    def sources(self, step: int, rank: int) -> tuple[int, ...]:
        """Whose messages `rank` mixes in this round, in rank order."""
        row = self.matrix(step)[rank]
        return tuple(int(j) for j in np.flatnonzero(row) if j != rank)

    def targets(self, step: int, rank: int) -> tuple[int, ...]:
        """Who mixes the message of `rank` in this round, in rank order."""
        column = self.matrix(step)[:, rank]
        return tuple(int(i) for i in np.flatnonzero(column) if i != rank)

    def neighbours(self, rank: int) -> set[int]:
        """All that `rank` exchanges messages with, in any round."""
        rounds = range(len(self.matrices))
        return {other for step in rounds for other in (*self.sources(step, rank), *self.targets(step, rank))}

    @cached_property
    def spectral_gap(self) -> float:
        """1 − max(|λ2|, |λn|): 1 averages at once, 0 never does. Of several matrices, that of one cycle's product, per
        round: the geometric mean of what a round leaves of any disagreement in the long run."""
        cycle = reduce(lambda product, W: W @ product, self.matrices, np.eye(self.size))
        left = cycle - np.full_like(cycle, 1.0 / self.size)
        symmetric = self.static and self.symmetric
        radius = float(np.abs(np.linalg.eigvalsh(left) if symmetric else np.linalg.eigvals(left)).max())
        if radius < 1e-12:
            return 1.0  # exact averaging up to rounding, which the root would blow up
        return max(0.0, 1.0 - float(radius ** (1.0 / len(self.matrices))))

    @cached_property
    def eigenvalues(self) -> NDArray[np.float64]:
        """λ1 = 1 ≥ λ2 ≥ … ≥ λn of a static, symmetric W."""
        if not (self.static and self.symmetric):
            raise ScenarioError(
                f"gossip graph {self.name} has no real spectrum: it changes from round to round or is not symmetric",
                hint="take a static graph with metropolis weights",
            )
        return np.asarray(np.linalg.eigvalsh(self.matrices[0])[::-1], dtype=np.float64)

    @property
    def beta(self) -> float:
        """β = ‖I − W‖₂ = 1 − λn, of a static, symmetric W."""
        return float(1.0 - self.eigenvalues[-1])

    @property
    def gamma_opt(self) -> float:
        """γ = 2 / ((1 − λ2) + (1 − λn)): the fastest exact gossip x ← x + γ(W − I)x, of a static, symmetric W."""
        if self.size == 1:
            return 1.0
        return float(2.0 / (2.0 - self.eigenvalues[1] - self.eigenvalues[-1]))
