"""The gossip graph: who averages with whom, with which weights.

One mixing matrix per round: a static graph has one, a cycle repeats some, random pairs are drawn anew in every round.
Rows belong to receivers: in round t worker i computes Σ_j W[i, j] x_j. Matrices are doubly stochastic, which keeps the
workers' mean, or only column-stochastic: each worker then shares out what it has along its outgoing arcs, which keeps
the sum, and push-sum methods (sgp) divide by a weight that is shared out alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ScenarioError
from testbed.seeds import derive

Kind = Literal["doubly", "column"]
SHOWN = 4  # rounds of a graph without end that people get to see


@dataclass(frozen=True, eq=False)
class Gossip:
    """Mixing matrices of a gossip graph, repeated cyclically."""

    name: str
    matrices: tuple[NDArray[np.float64], ...]
    kind: Kind = "doubly"  # which sums are 1: of rows and columns, or of columns alone

    @property
    def size(self) -> int:
        return int(self.matrices[0].shape[0])

    @property
    def static(self) -> bool:
        return len(self.matrices) == 1

    @property
    def drawn(self) -> int | None:
        """The seed of a graph that is drawn anew in every round; `matrices` are then those of its first rounds."""
        return None

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
        if self.size == 1:
            return 1.0
        if self.static and self.symmetric:
            radius = float(max(abs(self.eigenvalues[1]), abs(self.eigenvalues[-1])))
        else:
            radius = self._radius()
        if radius < 1e-12:
            return 1.0  # exact averaging up to rounding, which the root would blow up
        return max(0.0, 1.0 - float(radius ** (1.0 / len(self.matrices))))

    def _radius(self) -> float:
        """What one cycle leaves of any disagreement in the long run."""
        cycle = reduce(lambda product, W: W @ product, self.matrices, np.eye(self.size))
        if self.kind == "column":  # whose limit is no matrix of equal numbers
            return float(np.sort(np.abs(np.linalg.eigvals(cycle)))[-2])
        return float(np.abs(np.linalg.eigvals(cycle - np.full_like(cycle, 1.0 / self.size))).max())

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


@dataclass(frozen=True, eq=False)
class RandomPairs(Gossip):
    """In every round the workers are paired at random, as a function of seed and round; pairs take the mean of both.

    Where their number is odd one of them has no partner in a round, another one each time.
    """

    seed: int = 1

    @staticmethod
    def of(n: int, seed: int) -> RandomPairs:
        return RandomPairs("random-pairs", tuple(_paired(n, seed, step) for step in range(SHOWN)), seed=seed)

    @property
    def drawn(self) -> int:
        return self.seed

    @property
    def static(self) -> bool:
        return False

    def matrix(self, step: int) -> NDArray[np.float64]:
        return self.matrices[step] if step < len(self.matrices) else _paired(self.size, self.seed, step)

    def neighbours(self, rank: int) -> set[int]:
        return set(range(self.size)) - {rank}

    @cached_property
    def spectral_gap(self) -> float:
        """1 − √ρ, ρ what a round leaves of the workers' squared distance from their mean, in expectation: W is a
        projection, so ρ is the second eigenvalue of E[W] = I − (p/2) L with p the probability of a pair and L the
        complete graph's Laplacian, whose other eigenvalues are all n."""
        n = self.size
        if n == 1:
            return 1.0
        pair = 2 * (n // 2) / (n * (n - 1))
        return float(1.0 - max(0.0, 1.0 - pair * n / 2) ** 0.5)


@lru_cache(maxsize=64)
def _paired(n: int, seed: int, step: int) -> NDArray[np.float64]:
    """½ on both places of each pair."""
    order = np.random.Generator(np.random.PCG64(derive(seed, "pairs", step))).permutation(n)
    W = np.eye(n)
    for a, b in zip(order[0 : n - n % 2 : 2], order[1::2], strict=True):
        W[a, a] = W[b, b] = W[a, b] = W[b, a] = 0.5
    W.flags.writeable = False
    return W
