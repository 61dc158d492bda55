"""One flat fp32 buffer holds all parameters; layers are views into it. Tasks make it, compressors and
methods read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor


@dataclass(frozen=True)
class Slot:
    """Where one tensor lies in the flat buffer."""

    name: str
    shape: tuple[int, ...]
    start: int

    @cached_property
    def numel(self) -> int:
        return prod(self.shape)

    @cached_property
    def stop(self) -> int:
        return self.start + self.numel


@dataclass(frozen=True)
class Layout:
    """The order, names and shapes of the tensors in a flat buffer; identical on every worker."""

    slots: tuple[Slot, ...]

    @staticmethod
    def of(shapes: Iterable[tuple[str, Iterable[int]]]) -> Layout:
        slots: list[Slot] = []
        start = 0
        for name, shape in shapes:
            slots.append(Slot(name, tuple(shape), start))
            start = slots[-1].stop
        return Layout(tuple(slots))

    @cached_property
    def numel(self) -> int:
        return self.slots[-1].stop if self.slots else 0

    def views(self, flat: Tensor) -> Iterator[Tensor]:
        """The layers, shaped, as views: writing to one writes to the buffer."""
        for slot in self.slots:
            yield flat[slot.start : slot.stop].view(slot.shape)

    def zeros(self, device: torch.device | str = "cpu") -> Tensor:
        return torch.zeros(self.numel, dtype=torch.float32, device=device)
