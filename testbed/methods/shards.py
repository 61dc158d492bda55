"""A flat buffer in almost equal, contiguous shards, one per owner. The all-reduce baselines split their work by it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor

from testbed.flat import Layout


@dataclass(frozen=True)
class Shard:
    """The part start … stop of a flat buffer."""

    start: int
    stop: int

    def of(self, flat: Tensor) -> Tensor:
        return flat[self.start : self.stop]

    def layout(self, whole: Layout) -> Layout:
        """The layers in this shard; one that its border cuts becomes a vector, so each keeps a scale of its own."""
        shapes: list[tuple[str, tuple[int, ...]]] = []
        for slot in whole.slots:
            inside = min(slot.stop, self.stop) - max(slot.start, self.start)
            if inside > 0:
                shapes.append((slot.name, slot.shape if inside == slot.numel else (inside,)))
        return Layout.of(shapes)


def shards(start: int, stop: int, count: int) -> tuple[Shard, ...]:
    """start … stop in `count` shards whose sizes differ by one at most."""
    borders = [start + (stop - start) * k // count for k in range(count + 1)]
    return tuple(Shard(a, b) for a, b in pairwise(borders))
