"""From a gradient to the direction d of x − η·d: weight decay and local momentum as torch.optim.SGD defines them."""

from __future__ import annotations

from torch import Tensor

from testbed.flat import Layout
from testbed.worker.job import Training


class Optimiser:
    """SGD without its last line: methods apply the direction themselves, where their paper wants it.

    g ← g + λ x (not for 1-D tensors unless asked);  m ← μ m + g;  d = m, or g + μ m with Nesterov.
    """

    def __init__(self, training: Training, x: Tensor, layout: Layout) -> None:
        self._training = training
        self._x = x
        self._decayed = _ranges(layout, training.decay_vectors) if training.weight_decay else []
        self.momentum = x.new_zeros(x.shape) if training.momentum else None

    def direction(self, gradient: Tensor) -> Tensor:
        """Return d, overwriting the gradient; d may be the momentum itself, so callers only read it."""
        for start, stop in self._decayed:
            gradient[start:stop].add_(self._x[start:stop], alpha=self._training.weight_decay)
        if self.momentum is None:
            return gradient
        self.momentum.mul_(self._training.momentum).add_(gradient)
        if not self._training.nesterov:
            return self.momentum
        return gradient.add_(self.momentum, alpha=self._training.momentum)


def _ranges(layout: Layout, vectors: bool) -> list[tuple[int, int]]:
    """Return the parts of the flat buffer to which weight decay applies, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for slot in layout.slots:
        if len(slot.shape) < 2 and not vectors:
            continue
        if ranges and ranges[-1][1] == slot.start:
            ranges[-1] = (ranges[-1][0], slot.stop)
        else:
            ranges.append((slot.start, slot.stop))
    return ranges
