"""A task whose model is a torch module: parameters and gradients are views of flat buffers. Base of images and text."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from testbed.flat import Layout
from testbed.seeds import derive
from testbed.tasks.base import Task


class ModuleTask(Task):
    """What all tasks with a module share. Buffers such as batch statistics stay with the worker."""

    module: nn.Module

    def __init__(self, build: Callable[[], nn.Module], *, rank: int, seed: int) -> None:
        self._build = build
        self._rank = rank
        self._seed = seed
        self.module = self._fresh()
        self._parameters = list(self.module.parameters())
        self._views: list[Tensor] = []  # of the gradient
        self.layout = Layout.of((name, parameter.shape) for name, parameter in self.module.named_parameters())
        self.device = torch.device("cpu")
        self._random = any(isinstance(m, nn.Dropout) and m.p > 0 for m in self.module.modules()) or any(
            isinstance(m, nn.RNNBase) and m.dropout > 0 for m in self.module.modules()
        )

    @abstractmethod
    def _loss(self, step: int) -> Tensor:
        """Forward pass on this step's batch."""

    def initial(self) -> Tensor:
        # made anew each time: nothing of the model's size is kept for it
        return torch.cat([parameter.detach().reshape(-1) for parameter in self._fresh().parameters()])

    def bind(self, x: Tensor) -> None:
        self.device = x.device
        for parameter, view in zip(self._parameters, self.layout.views(x), strict=True):
            parameter.data = view
            parameter.grad = None  # its device and type may have changed
        for buffer in self.module.buffers():
            buffer.data = buffer.data.to(x.device)
        self._bind_gradient(torch.zeros_like(x))

    def gradient(self, step: int, out: Tensor) -> float:
        self._bind_gradient(out)
        out.zero_()
        loss = self.loss_of_step(step)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.item())

    def loss_of_step(self, step: int) -> Tensor:
        if not self.module.training:
            self.module.train()
        if not self._random:
            return self._loss(step)
        with self._noise(derive(self._seed, "dropout", self._rank, step)):
            return self._loss(step)

    def _bind_gradient(self, grad: Tensor) -> None:
        """Gradients accumulate into views of `grad`; cheap when they already do, as in every step but the first."""
        if self._views and self._views[0].data_ptr() == grad.data_ptr() and self._bound():
            return
        self.grad = grad
        self._views = list(self.layout.views(grad))
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.grad = view

    def _bound(self) -> bool:
        return all(parameter.grad is view for parameter, view in zip(self._parameters, self._views, strict=True))

    @contextmanager
    def _evaluating(self, x: Tensor) -> Iterator[None]:
        """The parameters are views of x and the module is in evaluation mode; afterwards as before."""
        before = [parameter.data for parameter in self._parameters]
        for parameter, view in zip(self._parameters, self.layout.views(x.to(self.device)), strict=True):
            parameter.data = view
        self.module.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            self.module.train()
            for parameter, data in zip(self._parameters, before, strict=True):
                parameter.data = data

    def _fresh(self) -> nn.Module:
        """The module as the seed makes it, the same on every rank."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(derive(self._seed, "model"))
            return self._build()

    @contextmanager
    def _noise(self, seed: int) -> Iterator[None]:
        """torch's own random numbers start from `seed` inside and go on as before outside."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.default_generator.manual_seed(seed)
            if devices:
                torch.cuda.manual_seed(seed)
            yield
