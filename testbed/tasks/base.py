"""What every task is: a model, data and a loss behind one flat buffer. Workers train it, DDP wraps its module.

A task belongs to one worker. Everything it computes depends only on the spec, the seed, the rank and the step, so a
run can be repeated, resumed, or replayed in a single process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from testbed.flat import Layout


class Task(ABC):
    """Model + data + loss of one worker."""

    layout: Layout
    module: torch.nn.Module | None  # for DDP; its parameters are views of the bound buffer
    grad: Tensor  # the flat buffer whose views the parameters' gradients are: bind's own, then the last `out`

    @abstractmethod
    def initial(self) -> Tensor:
        """Flat fp32 parameters to start from: a function of the seed alone, so equal on all ranks."""

    @abstractmethod
    def bind(self, x: Tensor) -> None:
        """The model's parameters become views of x, their gradients views of one flat gradient buffer."""

    @abstractmethod
    def gradient(self, step: int, out: Tensor) -> float:
        """The loss on this rank's batch of `step`; writes the flat gradient at the bound x into `out`."""

    @abstractmethod
    def loss_of_step(self, step: int) -> Tensor:
        """The same loss with its autograd graph, for those who call backward themselves (DDP)."""

    @abstractmethod
    def evaluate(self, x: Tensor) -> dict[str, float]:
        """Held-out {"loss", "accuracy"} or {"loss", "perplexity"} at x; the bound buffer stays as it is."""


def make(spec: Any, *, rank: int, size: int, seed: int, data_dir: Path | None = None) -> Task:
    """The task a scenario names, for one worker: "digits" or {model: resnet20, data: cifar10, batch: 32, …}."""
    from testbed.tasks.spec import make as make_from_spec  # the models import this module

    return make_from_spec(spec, rank=rank, size=size, seed=seed, data_dir=data_dir)
