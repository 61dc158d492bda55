"""Which worker trains on which samples: pure functions of labels or sources, the number of workers and a seed.

Each returns one sorted index array per worker; together they hold every sample exactly once and none is empty.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import ScenarioError

Indices = NDArray[np.int64]


def iid(samples: int, size: int, seed: int) -> list[Indices]:
    """Equal shares at random."""
    _enough(samples, size, "samples")
    return _sorted(np.array_split(_rng(seed).permutation(samples), size))


def contiguous(samples: int, size: int) -> list[Indices]:
    """Equal shares in order: each worker a piece of the text."""
    _enough(samples, size, "samples")
    return _sorted(np.array_split(np.arange(samples), size))


def shards(labels: NDArray[Any], size: int, per_worker: int, seed: int) -> list[Indices]:
    """Sorted by label and cut into equal shards, `per_worker` of them for each worker (McMahan et al. 2017)."""
    _enough(len(labels), size * per_worker, "samples", f"{size} workers × {per_worker} shards")
    pieces = np.array_split(np.argsort(labels, kind="stable"), size * per_worker)
    dealt = _rng(seed).permutation(size * per_worker).reshape(size, per_worker)
    return _sorted([np.concatenate([pieces[i] for i in hand]) for hand in dealt])


def dirichlet(labels: NDArray[Any], size: int, alpha: float, seed: int) -> list[Indices]:
    """Each label's samples shared out in proportions drawn from Dirichlet(α): small α, few labels per worker
    (Hsu et al. 2019). A worker that would get nothing gets one sample of the richest worker."""
    _enough(len(labels), size, "samples")
    rng = _rng(seed)
    hands: list[list[Indices]] = [[] for _ in range(size)]
    for label in np.unique(labels):
        samples = rng.permutation(np.flatnonzero(labels == label))
        ends = np.cumsum(rng.dirichlet(np.full(size, alpha)))[:-1]
        cuts = np.rint(ends * len(samples)).astype(np.int64)
        for hand, piece in zip(hands, np.split(samples, cuts), strict=True):
            hand.append(piece)
    parts = [np.concatenate(hand) for hand in hands]
    for worker in range(size):
        if not len(parts[worker]):
            rich = max(range(size), key=lambda other: len(parts[other]))
            parts[worker], parts[rich] = parts[rich][-1:], parts[rich][:-1]
    return _sorted(parts)


def by_source(sources: NDArray[Any], size: int) -> list[Indices]:
    """All samples of one source (an author) stay together; the largest source goes to the poorest worker first."""
    names, counts = np.unique(sources, return_counts=True)
    _enough(len(names), size, "sources")
    owners: dict[Any, int] = {}
    loads = [0] * size
    for i in np.argsort(-counts, kind="stable"):
        poorest = min(range(size), key=lambda worker: loads[worker])
        owners[names[i]] = poorest
        loads[poorest] += int(counts[i])
    owner = np.array([owners[name] for name in names])[np.searchsorted(names, sources)]
    return [np.flatnonzero(owner == worker) for worker in range(size)]


def _rng(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def _sorted(parts: list[NDArray[Any]]) -> list[Indices]:
    return [np.sort(part).astype(np.int64) for part in parts]


def _enough(have: int, need: int, what: str, whom: str | None = None) -> None:
    if have < need:
        raise ScenarioError(f"split: {have} {what} are too few for {whom or f'{need} workers'}")
