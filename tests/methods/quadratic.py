"""The problem of the methods' tests: f_i(x) = ½ (x − c_i)ᵀ diag(h_i) (x − c_i), with or without gradient noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.seeds import derive


@dataclass(frozen=True)
class Quadratic:
    """c and h hold a worker in each row."""

    c: NDArray[np.float64]
    h: NDArray[np.float64]
    noise: float = 0.0

    @staticmethod
    def of(n: int, d: int, *, shared_hessian: bool = False, noise: float = 0.0, seed: int = 0) -> Quadratic:
        random = np.random.default_rng(seed)
        # Values that fp32 holds exactly: both sides then solve the same problem.
        c = random.standard_normal((n, d)).astype(np.float32).astype(np.float64)
        h = random.uniform(0.5, 1.5, (1 if shared_hessian else n, d)).astype(np.float32).astype(np.float64)
        return Quadratic(c, np.tile(h, (n // len(h), 1)), noise)

    @cached_property
    def _fp32(self) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(self.c).float(), torch.from_numpy(self.h).float()

    def direction(self, rank: int, step: int, x: Tensor) -> Tensor:
        """For the harness."""
        c, h = self._fp32
        g = (x - c[rank]).mul_(h[rank])
        if self.noise:
            random = np.random.Generator(np.random.SFC64(derive(0, rank, step)))
            g += self.noise * torch.from_numpy(random.standard_normal(len(g), dtype=np.float32))
        return g

    def directions(self, X: NDArray[np.float64], step: int) -> NDArray[np.float64]:
        """For the oracles, without noise."""
        return self.h * (X - self.c)

    def suboptimality(self, X: Tensor) -> float:
        """(f(x̄) − f*)/(f(0) − f*), f being the mean over the workers."""
        weight = self.h.mean(0)
        best = (self.h * self.c).mean(0) / weight
        error = X.double().mean(0).numpy() - best
        return float((weight * error**2).sum() / (weight * best**2).sum())
