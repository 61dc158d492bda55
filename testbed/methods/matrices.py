"""The matrices of a flat buffer, equal ones batched without copying. Low-rank methods multiply them a batch at a time.

A tensor of two or more dimensions is a matrix (shape[0], the rest). Networks repeat blocks, so equal matrices often lie
at equal distances: one strided view shows them as (count, rows, columns).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from testbed.flat import Layout, Slot


@dataclass(frozen=True)
class Matrices:
    """`count` matrices, the first at `start`, each `stride` floats after the one before."""

    start: int
    stride: int
    count: int
    rows: int
    columns: int

    def of(self, flat: Tensor) -> Tensor:
        """The view (count, rows, columns)."""
        return flat.as_strided((self.count, self.rows, self.columns), (self.stride, self.columns, 1), self.start)


def batches(layout: Layout) -> tuple[Matrices, ...]:
    """All matrices of the layout; the batches in the order of their first matrix."""
    slots = [slot for slot in layout.slots if len(slot.shape) > 1 and slot.numel]
    shapes = dict.fromkeys((slot.shape[0], slot.numel // slot.shape[0]) for slot in slots)
    found: list[Matrices] = []
    for rows, columns in shapes:
        found += _runs(slot for slot in slots if (slot.shape[0], slot.numel // slot.shape[0]) == (rows, columns))
    return tuple(sorted(found, key=lambda batch: batch.start))


def vectors(layout: Layout) -> Tensor:
    """Where the elements of all other tensors are: biases, scales."""
    places = [torch.arange(slot.start, slot.stop) for slot in layout.slots if len(slot.shape) <= 1]
    return torch.cat(places) if places else torch.empty(0, dtype=torch.long)


def _runs(equal: Iterable[Slot]) -> list[Matrices]:
    """Equal matrices, grouped into runs with a constant stride."""
    runs: list[Matrices] = []
    for slot in equal:
        rows = slot.shape[0]
        if runs:
            last = runs[-1]
            gap = slot.start - (last.start + (last.count - 1) * last.stride)
            if last.count == 1 or gap == last.stride:
                runs[-1] = replace(last, stride=gap, count=last.count + 1)
                continue
        runs.append(Matrices(slot.start, slot.numel, 1, rows, slot.numel // rows))
    return runs
