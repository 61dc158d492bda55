"""Gossip alone: workers agree on the mean of random matrices and learn nothing. For error against steps and bytes.

All start at 0, as methods that keep copies of their neighbours' models need it; the gradient of step 0 takes worker i
to its own matrix c_i, every later one is 0. So training needs a learning rate of 1 and nothing that goes on by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from testbed.errors import ScenarioError
from testbed.flat import Layout
from testbed.seeds import derive
from testbed.tasks.base import Task
from testbed.tasks.quadratic import Holder


@dataclass(frozen=True)
class Consensus:
    """No training: each worker starts from a matrix of its own, and gossip alone must average them."""

    name: ClassVar[str] = "consensus"

    shape: tuple[int, ...] = (100, 100)  # of each worker's matrix; its entries are drawn from N(0, 1)

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise ScenarioError(f"shape: sizes of at least 1, not {list(self.shape)}")


class ConsensusTask(Task):
    """One worker's matrix. A loss is the squared distance from the true mean of all matrices, 1 being how far they were
    from it at first: it counts both what the workers disagree in and how far off they are together."""

    module: Holder

    def __init__(self, options: Consensus, *, rank: int, size: int, seed: int) -> None:
        self._shape = options.shape
        self.layout = Layout.of([("x", options.shape)])
        every = torch.stack([self._matrix(seed, other) for other in range(size)])
        self._own = every[rank].clone()
        self._mean = every.double().mean(0).float()
        self._scale = max(float((every - self._mean).square().sum()) / size, 1e-30)  # one worker agrees with itself
        self.module = Holder(self.initial().view(options.shape))
        self.grad = torch.zeros(self.layout.numel)

    def initial(self) -> Tensor:
        return torch.zeros(self.layout.numel)

    def bind(self, x: Tensor) -> None:
        self.module.x.data = x.view(self._shape)
        self.grad = torch.zeros_like(x)
        self.module.x.grad = self.grad.view(self._shape)
        self._own, self._mean = self._own.to(x.device), self._mean.to(x.device)

    def gradient(self, step: int, out: Tensor) -> float:
        torch.mul(self._own, -1.0 if step == 0 else 0.0, out=out)
        return self._distance(self.module.x.detach().view(-1))

    def loss_of_step(self, step: int) -> Tensor:
        """Its value is a linear function with that gradient, not the distance: autograd must find the same one."""
        return torch.dot(self.module.x.view(-1), self._own) * (-1.0 if step == 0 else 0.0)

    def evaluate(self, x: Tensor) -> dict[str, float]:
        return {"loss": self._distance(x.detach().to(self._mean.device))}

    def _distance(self, x: Tensor) -> float:
        return float((x - self._mean).square().sum()) / self._scale

    def _matrix(self, seed: int, rank: int) -> Tensor:
        generator = torch.Generator().manual_seed(derive(seed, "consensus", rank))
        return torch.randn(self.layout.numel, generator=generator)
