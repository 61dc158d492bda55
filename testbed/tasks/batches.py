"""Which samples make up the batch of a step, and how pictures are varied: pure in (seed, rank, step) and cheap."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from testbed.seeds import derive
from testbed.tasks.splits import Indices

MARGIN = 4  # pixels that a random crop may move


@dataclass
class Order:
    """Epoch after epoch of the samples, each freshly shuffled, end to end; a step takes the next `batch` of them.

    No sample is left out at the end of an epoch, and a worker with fewer samples than a batch repeats them.
    """

    samples: Indices
    batch: int
    seed: int
    offset: int = 0
    stride: int = 0
    _epochs: dict[int, Indices] = field(default_factory=dict, repr=False)

    @staticmethod
    def of_worker(samples: Indices, batch: int, seed: int, rank: int) -> Order:
        """This worker's own samples."""
        return Order(samples, batch, derive(seed, "order", rank), 0, batch)

    @staticmethod
    def of_all(samples: int, batch: int, seed: int, rank: int, size: int) -> Order:
        """Every epoch all samples are dealt anew: the workers take turns in one permutation."""
        return Order(np.arange(samples), batch, derive(seed, "order", "all"), rank * batch, size * batch)

    def __call__(self, step: int) -> Indices:
        epoch, start = divmod(step * self.stride + self.offset, len(self.samples))
        stop = start + self.batch
        if stop <= len(self.samples):
            return self._epoch(epoch)[start:stop]
        last = (stop - 1) // len(self.samples)
        return np.concatenate([self._epoch(epoch + i) for i in range(last + 1)])[start:stop]

    def _epoch(self, epoch: int) -> Indices:
        if epoch not in self._epochs:
            for old in [known for known in self._epochs if known < epoch - 1 or known > epoch]:
                del self._epochs[old]
            rng = np.random.Generator(np.random.PCG64(derive(self.seed, epoch)))
            self._epochs[epoch] = rng.permutation(self.samples)
        return self._epochs[epoch]


@dataclass(frozen=True)
class Streams:
    """Text in order: the samples are cut into `batch` contiguous streams that advance one window per step."""

    samples: Indices
    batch: int

    @property
    def length(self) -> int:
        return len(self.samples) // self.batch

    def __call__(self, step: int) -> Indices:
        return self.samples[np.arange(self.batch) * self.length + step % self.length]

    def starts(self, step: int) -> bool:
        """At this step the streams begin (again)."""
        return step % self.length == 0


def crop_and_flip(images: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Each image moved by up to MARGIN pixels over black and half of them mirrored, the whole batch at once."""
    count, height, width, channels = images.shape
    rng = np.random.Generator(np.random.PCG64(seed))
    top, left = rng.integers(0, 2 * MARGIN + 1, (2, count))
    mirrored = rng.random(count) < 0.5
    padded = np.zeros((count, height + 2 * MARGIN, width + 2 * MARGIN, channels), np.uint8)
    padded[:, MARGIN:-MARGIN, MARGIN:-MARGIN] = images
    padded[mirrored] = padded[mirrored, :, ::-1]
    # all crops of all images, as a view: choosing one for each image copies whole rows
    crops = np.lib.stride_tricks.as_strided(
        padded,
        (count, 2 * MARGIN + 1, 2 * MARGIN + 1, height, width, channels),
        (*padded.strides[:3], *padded.strides[1:]),
    )
    chosen: NDArray[np.uint8] = crops[np.arange(count), top, left]
    return chosen
