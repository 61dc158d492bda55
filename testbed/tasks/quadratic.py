"""Quadratics with known optimum: every claim about methods that needs no neural network can be checked on them.

Worker i minimises f_i(x) = ½ (x − c_i)ᵀ diag(h_i) (x − c_i). With a shared h, the mean of all workers follows exact
gradient descent under every method that keeps the mean; with heterogeneous h, decentralized methods have a bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from testbed.errors import ScenarioError
from testbed.flat import Layout
from testbed.seeds import derive
from testbed.tasks.base import Task


@dataclass(frozen=True)
class Quadratic:
    """Each worker has a quadratic of its own; the best x is known, a gradient takes microseconds."""

    name: ClassVar[str] = "quadratic"

    shape: tuple[int, ...] = (50, 50)  # of x; two axes give low-rank methods a matrix
    hessian: Literal["shared", "heterogeneous"] = "shared"
    noise: float = 0.0  # standard deviation of each gradient coordinate
    spread: float = 1.0  # standard deviation of the workers' optima c_i
    curvature: tuple[float, ...] = (0.1, 1.0)  # least and largest entry of h

    def __post_init__(self) -> None:
        if not self.shape or min(self.shape) < 1:
            raise ScenarioError(f"shape: sizes of at least 1, not {list(self.shape)}")
        if len(self.curvature) != 2 or not 0 < self.curvature[0] <= self.curvature[1]:
            raise ScenarioError(f"curvature: [least, largest], both above 0, not {list(self.curvature)}")
        if self.noise < 0 or self.spread < 0:
            raise ScenarioError("noise and spread cannot be negative")


class Holder(nn.Module):
    """x as a parameter, for DDP."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.x = nn.Parameter(x)


class QuadraticTask(Task):
    """One worker's quadratic; evaluates the mean of all of them."""

    module: Holder

    def __init__(self, options: Quadratic, *, rank: int, size: int, seed: int) -> None:
        self._options = options
        self._seed = seed
        self._rank = rank
        self.layout = Layout.of([("x", options.shape)])
        self._curvature, self._optimum = self._problem(rank)
        self._noise = torch.zeros(self.layout.numel if options.noise else 0)
        self._generator = torch.Generator()
        # the mean of all f_i as ½ xᵀ diag(h) x − bᵀx + constant
        problems = [self._problem(other) for other in range(size)]
        self._mean_h = torch.stack([h.double() for h, _ in problems]).mean(0)
        self._mean_b = torch.stack([h.double() * c.double() for h, c in problems]).mean(0)
        self._constant = sum(0.5 * float(h.double() @ c.double().square()) for h, c in problems) / size
        self.module = Holder(self.initial().view(options.shape))
        self.grad = torch.zeros(self.layout.numel)

    @property
    def optimum(self) -> Tensor:
        """Where the mean of all workers' functions is least."""
        return (self._mean_b / self._mean_h).float()

    def initial(self) -> Tensor:
        return torch.randn(self.layout.numel, generator=self._seeded("initial"))

    def bind(self, x: Tensor) -> None:
        self.module.x.data = x.view(self._options.shape)
        self.grad = torch.zeros_like(x)
        self.module.x.grad = self.grad.view(self._options.shape)
        self._curvature, self._optimum = self._curvature.to(x.device), self._optimum.to(x.device)

    def gradient(self, step: int, out: Tensor) -> float:
        x = self.module.x.detach().view(-1)
        distance = torch.sub(x, self._optimum, out=out)
        loss = 0.5 * float(torch.dot(distance * self._curvature, distance))
        if self._options.noise:
            noise = self._draw(step)
            loss += float(torch.dot(noise, distance))
            out.mul_(self._curvature).add_(noise)
        else:
            out.mul_(self._curvature)
        return loss

    def loss_of_step(self, step: int) -> Tensor:
        distance = self.module.x.view(-1) - self._optimum
        loss = 0.5 * (self._curvature * distance.square()).sum()
        return loss + (self._draw(step) * distance).sum() if self._options.noise else loss

    def evaluate(self, x: Tensor) -> dict[str, float]:
        """The mean of all workers' functions, and how far that is above its least value."""
        at = x.detach().to("cpu", torch.float64)
        loss = 0.5 * float(self._mean_h @ at.square()) - float(self._mean_b @ at) + self._constant
        excess = 0.5 * float(self._mean_h @ (at - self._mean_b / self._mean_h).square())
        return {"loss": loss, "suboptimality": excess}

    def _problem(self, rank: int) -> tuple[Tensor, Tensor]:
        least, largest = self._options.curvature
        whose = rank if self._options.hessian == "heterogeneous" else -1
        h = torch.rand(self.layout.numel, generator=self._seeded("curvature", whose)) * (largest - least) + least
        c = torch.randn(self.layout.numel, generator=self._seeded("optimum", rank)) * self._options.spread
        return h, c

    def _draw(self, step: int) -> Tensor:
        """This step's gradient noise."""
        self._generator.manual_seed(derive(self._seed, "noise", self._rank, step))
        return self._noise.normal_(0.0, self._options.noise, generator=self._generator).to(self._optimum.device)

    def _seeded(self, *purpose: int | str) -> torch.Generator:
        return torch.Generator().manual_seed(derive(self._seed, "quadratic", *purpose))
