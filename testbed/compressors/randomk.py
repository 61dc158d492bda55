"""Random coordinates, known to both ends from a seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.compressors.arrays import read, write
from testbed.compressors.base import Codec, Compressor, option
from testbed.compressors.options import flag, share
from testbed.compressors.selection import count_kept
from testbed.flat import Layout
from testbed.seeds import derive


@dataclass(frozen=True)
class RandomK(Compressor):
    """Keep k = max(1, ⌊fraction·d⌋) elements of each tensor, every k-subset being equally likely:

        C(x)_i = x_i if i ∈ S else 0            biased, E‖C(x) − x‖² = (1 − k/d)·‖x‖²
        C(x)_i = (d/k)·x_i if i ∈ S else 0      unbiased: E‖C(x) − x‖² = (d/k − 1)·‖x‖², which saturates at ±3.4e38

    Wire: 8-byte seed ‖ Σk × fp32. S follows from the seed: raw words of SFC64, 53 bits each times d, until k places are
    found (where k > d/2: the d − k places to leave out), tensor by tensor; values in ascending order of place.
    """

    name = "randomk"
    paper = "Stich et al. 2018, arXiv 1809.07599"
    bias = "biased (unbiased: true: unbiased)"
    short = "fraction"

    fraction: float = option(
        0.01,
        parse=share,
        help="share of the elements that are sent. If the consensus distance grows at a gamma that topk bears, send"
        " more",
    )
    unbiased: bool = option(
        False,
        parse=flag,
        help="scale by d/k, as dcd and ecd assume. The error grows to d/k − 1 times ‖x‖²: if they diverge, send more",
    )

    def bind(self, layout: Layout, seed: int) -> RandomKCodec:
        return RandomKCodec(self, layout, seed)


class RandomKCodec(Codec):
    def __init__(self, options: RandomK, layout: Layout, seed: int) -> None:
        slots = [slot for slot in layout.slots if slot.numel]
        self.kept = [(slot, count_kept(options.fraction, slot.numel)) for slot in slots]
        self.total = sum(k for _, k in self.kept)
        super().__init__(layout, 8 + 4 * self.total)
        self.seed = seed
        gains = [torch.full((k,), slot.numel / k) for slot, k in self.kept] if options.unbiased else []
        self.gain = torch.cat(gains) if gains else None
        self._last: tuple[int, Tensor] | None = None  # a worker decodes its own message too

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        self.check_finite(x, step)
        seed = derive(self.seed, "noise", step)
        values = x.index_select(0, self._places(seed).to(x.device))
        if self.gain is not None:
            limit = torch.finfo(torch.float32).max
            values = values.mul_(self.gain.to(x.device)).clamp_(-limit, limit)
        write(message, write(message, 0, np.array([seed], np.int64)), values)
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        seed = int(read(message, 0, 1, torch.int64))
        values = read(message, 8, self.total, torch.float32)
        places = self._places(seed).to(dest.device)
        dest.index_add_(0, places, values if weight == 1.0 else values * weight)

    def _places(self, seed: int) -> Tensor:
        """The chosen indices into the flat vector, ascending."""
        if self._last is None or self._last[0] != seed:
            words = np.random.SFC64(seed)
            room = np.empty(max((slot.numel for slot, _ in self.kept), default=0), np.bool_)
            parts = [subset(words, slot.numel, k, room) + slot.start for slot, k in self.kept]
            self._last = seed, torch.from_numpy(np.concatenate([np.empty(0, np.int64), *parts]))
        return self._last[1]


def subset(words: np.random.SFC64, n: int, k: int, room: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A uniformly random k-subset of 0…n−1, ascending: the first k different numbers of a random sequence."""
    drawn = min(k, n - k)
    marked = room[:n]
    marked[...] = False
    missing = drawn
    while missing:
        marked[((words.random_raw(missing) >> np.uint64(11)) * (2.0**-53 * n)).astype(np.int64)] = True
        missing = drawn - int(np.count_nonzero(marked))
    return np.flatnonzero(marked if drawn == k else ~marked)
