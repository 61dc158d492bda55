"""The tiny problem on which independent scripts computed trajectories: 4 workers, 3 coordinates, all numbers exact in
fp32. f_i = ½ (x − c_i)ᵀ diag(h_i) (x − c_i), one model at the start, a ring with 1/3 everywhere, η = 1/8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from testbed.methods import make
from testbed.topology.gossip import Gossip

from .harness import Cluster, ring
from .quadratic import Quadratic

PROBLEM = Quadratic(
    np.array([[1, -2, 0.5], [0, 1, -1], [-1, 0.5, 2], [2, 0, 1]], dtype=np.float64),
    np.array([[1, 0.5, 2], [0.5, 1, 1], [2, 1.5, 0.5], [1, 2, 1]], dtype=np.float64),
)
X0 = torch.tensor([0.25, -0.5, 1.0])
ETA = 1 / 8
BEST = (PROBLEM.h * PROBLEM.c).sum(0) / PROBLEM.h.sum(0)  # the minimum of the mean
TOLERANCE = 2e-6  # of an fp32 run


def tiny(spec: Any, gossip: Gossip | None = None, *, lr: float = ETA, **options: Any) -> Cluster:
    """The problem's workers, before the first step."""
    return Cluster(make(spec), gossip or ring(4), X0, PROBLEM.direction, lr=lr, **options)


def assert_rows(X: torch.Tensor, *rows: tuple[float, ...], tolerance: float = TOLERANCE) -> None:
    """The first workers' models, as many as are given; the published digits are six."""
    expected = np.array(rows)
    error = np.abs(X[: len(rows)].double().numpy() - expected).max()
    assert error <= tolerance, f"off by {error:.2g}:\n{X[: len(rows)]}\n{expected}"


def distance(cluster: Cluster) -> float:
    """The farthest worker's from the minimum."""
    return float(np.abs(cluster.X.double().numpy() - BEST).max())
