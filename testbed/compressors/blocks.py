"""How a message is cut into buckets that share a scale and blocks that fit the cache, with the statistics of a bucket.

Used by the codecs that quantize. Buckets and blocks follow from the layout alone; results never depend on block sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.compressors.arrays import Array, Scratch, arrays
from testbed.flat import Layout, Slot

BLOCK = 32_768  # elements; several fp32 buffers of this size fit a core's second-level cache


@dataclass(frozen=True)
class Block:
    """Elements start…stop−1 of the flat vector: the buckets first…last−1 of one tensor, or a part of a single one."""

    start: int
    stop: int
    first: int
    last: int
    at: int  # its packed codes are bytes at…end−1 of the payload
    end: int

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Buckets:
    """The runs of elements that share a scale: whole tensors, or at most `bucket` consecutive elements of one."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    blocks: tuple[Block, ...]
    payload: int  # bytes of all codes; every tensor begins on a byte

    @staticmethod
    def of(layout: Layout, bits: int, bucket: int | None = None) -> Buckets:
        starts: list[int] = []
        sizes: list[int] = []
        blocks: list[Block] = []
        payload = 0
        for slot in layout.slots:
            if slot.numel == 0:
                continue
            width = min(bucket or slot.numel, slot.numel)
            for start, stop in _cuts(slot, width):
                first = len(starts) + (start - slot.start) // width
                last = len(starts) + -((slot.start - stop) // width)
                end = payload + -(-(stop - start) * bits // 8)
                blocks.append(Block(start, stop, first, last, payload, end))
                payload = end
            for start in range(slot.start, slot.stop, width):
                starts.append(start)
                sizes.append(min(width, slot.stop - start))
        return Buckets(np.array(starts, np.int64), np.array(sizes, np.int64), tuple(blocks), payload)

    def __len__(self) -> int:
        return len(self.starts)


def _cuts(slot: Slot, width: int) -> Iterator[tuple[int, int]]:
    """Blocks of one tensor: several whole buckets of equal width, or a part of one. All but a tensor's last block hold
    a multiple of 8 elements, so that their codes end on a byte."""
    if width > BLOCK:
        for start in range(slot.start, slot.stop, width):
            stop = min(start + width, slot.stop)
            for cut in range(start, stop, BLOCK):
                yield cut, min(cut + BLOCK, stop)
        return
    whole = slot.stop - slot.numel % width
    stride = BLOCK // width * width
    for start in range(slot.start, whole, stride):
        yield start, min(start + stride, whole)
    if whole < slot.stop:
        yield whole, slot.stop


def extrema(x: Tensor, buckets: Buckets) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Smallest and largest value of each bucket, NaN if it holds one; zeros come out positive."""
    xp, xs = arrays(x)
    if xp is np:
        low = np.minimum.reduceat(xs, buckets.starts)
        high = np.maximum.reduceat(xs, buckets.starts)
    else:
        runs = zip(buckets.starts.tolist(), buckets.sizes.tolist(), strict=True)
        pairs = [torch.stack(torch.aminmax(x[start : start + size])) for start, size in runs]
        low, high = torch.stack(pairs, dim=1).cpu().numpy()
    return low + np.float32(0), high + np.float32(0)


def power_sums(x: Tensor, buckets: Buckets, power: int, scratch: Scratch) -> NDArray[np.float64]:
    """Σ|x|^power of each bucket in fp64: no overflow, NaN or Inf only if x holds one, and (rounded to fp32 afterwards)
    the same on every device although the order of summation is not."""
    xp, xs, wide = arrays(x, scratch("fp64", BLOCK, torch.float64, x.device))
    sums = np.zeros(len(buckets))
    for block in buckets.blocks:
        terms = wide[: block.size]
        terms[...] = xs[block.start : block.stop]
        if power == 1:
            xp.abs(terms, out=terms)
        else:
            terms *= terms
        sums[block.first] += float(terms.sum())
    return sums


def column(xp: Array, values: NDArray[np.float64], block: Block, like: Array) -> Array:
    """The block's per-bucket values in the precision of `like`: a number for one bucket, else a column for its rows."""
    if block.last - block.first == 1:
        return float(values[block.first])
    part = values[block.first : block.last, None]
    return part.astype(like.dtype) if xp is np else torch.from_numpy(part).to(like.device, like.dtype)
