"""Exactly the k elements of largest magnitude, fast: a sample tells a threshold that a little more than k of them pass;
only those are partitioned. Among equals the lowest index wins, on every device.

Without its sign bit, an fp32 number read as an integer orders by magnitude, Inf and NaN on top.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.compressors.blocks import BLOCK

MAGNITUDE = 0x7FFF_FFFF

_SAMPLE = 4096  # elements looked at for the threshold
_WORTH = 4 * _SAMPLE  # with fewer elements than this, or more than a quarter of them wanted, partition all


def count_kept(share: float, numel: int) -> int:
    """max(1, ⌊share·numel⌋), safe against 0.29·100 = 28.999…"""
    return max(1, int(share * numel * (1 + 1e-12)))


class Largest:
    """Selects on the CPU; keeps its buffers from call to call."""

    def __init__(self) -> None:
        self._keys = np.empty(BLOCK, np.int32)
        self._passes = np.empty(0, np.bool_)

    def __call__(self, bits: NDArray[np.int32], k: int) -> NDArray[np.int64]:
        """Indices of the k largest magnitudes among fp32 numbers read as integers, ascending."""
        if k == 1:
            return np.array([(bits & MAGNITUDE).argmax()])
        passed = self.candidates(bits, k)
        pool = (bits if passed is None else bits[passed]) & MAGNITUDE
        kth = np.partition(pool, len(pool) - k)[len(pool) - k]
        keep = pool > kth
        missing = k - np.count_nonzero(keep)
        keep[np.flatnonzero(pool == kth)[:missing]] = True
        kept = np.flatnonzero(keep)
        return kept if passed is None else passed[kept]

    def candidates(self, bits: NDArray[np.int32], k: int) -> NDArray[np.int64] | None:
        """At least k indices, ascending, that hold all of the k largest; None where all elements must be looked at."""
        if len(bits) < _WORTH or 4 * k > len(bits):
            return None
        sample = bits[:: len(bits) // _SAMPLE | 1] & MAGNITUDE  # an odd stride, so as not to walk along one channel
        expected = len(sample) * k / len(bits)
        rank = int(expected + 4 * sqrt(expected) + 4)  # four standard deviations to the safe side
        threshold = np.partition(sample, len(sample) - rank)[len(sample) - rank]
        passes = self._room(len(bits))
        for start in range(0, len(bits), BLOCK):
            part = bits[start : start + BLOCK]
            keys = np.bitwise_and(part, MAGNITUDE, out=self._keys[: len(part)])
            np.greater_equal(keys, threshold, out=passes[start : start + len(part)])
        passed = _places(passes)
        return passed if len(passed) >= k else None

    def _room(self, count: int) -> NDArray[np.bool_]:
        """Flags for `count` elements, and none set in the rest of the last eight."""
        padded = -(-count // 8) * 8
        if len(self._passes) < padded:
            self._passes = np.empty(padded, np.bool_)
        self._passes[count:padded] = False
        return self._passes[:padded]


def _places(flags: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where the flags are set: numpy's `nonzero`, by eights, which is faster where few are set."""
    eights = flags.view(np.uint64)
    some = (eights != 0).nonzero()[0]
    within = eights[some].view(np.bool_).nonzero()[0]
    places: NDArray[np.int64] = some[within >> 3]
    places <<= 3
    within &= 7
    places += within
    return places


def largest_torch(bits: Tensor, k: int) -> Tensor:
    """The same indices with torch operations, for other devices."""
    keys = bits & MAGNITUDE
    kth = torch.topk(keys, k).values[-1]
    keep = keys > kth
    missing = k - int(keep.sum())
    keep[torch.nonzero(keys == kth).flatten()[:missing]] = True
    return torch.nonzero(keep).flatten()
