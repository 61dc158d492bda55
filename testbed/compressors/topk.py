"""The largest values of each tensor with their places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.compressors.arrays import Scratch, arrays, read, write
from testbed.compressors.base import Codec, Compressor, all_finite, option
from testbed.compressors.options import choice, share
from testbed.compressors.selection import Largest, count_kept, largest_torch
from testbed.errors import ScenarioError
from testbed.flat import Layout

_VALUES = {"fp32": torch.float32, "fp16": torch.float16}


@dataclass(frozen=True)
class TopK(Compressor):
    """Keep exactly the k = max(1, ⌊fraction·d⌋) elements of largest magnitude of each tensor; ties: the lowest index.

        C(x)_i = x_i if i ∈ top_k(|x|) else 0

    Biased; contracts with δ ≥ k/d.

    Wire: Σk × values fp32 (or fp16) ‖ Σk × int32 indices into the flat vector, tensor by tensor, ascending.
    """

    name = "topk"
    paper = "Stich et al. 2018, arXiv 1809.07599"
    short = "fraction"

    fraction: float = option(
        0.01,
        parse=share,
        help="share of the elements that are sent. If choco needs a gamma below 0.01, or the consensus distance grows,"
        " send more; above 1/16 (fp32) the indices cost more than sending 4bit codes of everything",
    )
    values: str = option(
        "fp32",
        parse=choice("fp32", "fp16"),
        help="precision of the values: fp16 saves a quarter of the message and saturates at ±65504",
    )

    def bind(self, layout: Layout, seed: int) -> TopKCodec:
        return TopKCodec(self, layout)


class TopKCodec(Codec):
    def __init__(self, options: TopK, layout: Layout) -> None:
        if layout.numel >= 2**31:
            raise ScenarioError(f"compressor topk: {layout.numel} parameters do not fit its 32-bit indices")
        slots = [slot for slot in layout.slots if slot.numel]
        self.kept = [(slot, count_kept(options.fraction, slot.numel)) for slot in slots]
        self.total = sum(k for _, k in self.kept)
        self.dtype = _VALUES[options.values]
        super().__init__(layout, self.total * (self.dtype.itemsize + 4))
        self.scratch = Scratch()
        self.largest = Largest()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        indices = self.scratch("indices", self.total, torch.int32, x.device)
        xp, bits, chosen = arrays(x.view(torch.int32), indices)
        select = self.largest if xp is np else largest_torch
        at = 0
        for slot, k in self.kept:
            kept = select(bits[slot.start : slot.stop], k)
            kept += slot.start
            chosen[at : at + k] = kept
            at += k
        values = x.index_select(0, indices)
        if not all_finite(values):  # NaN and Inf rank highest, so they are among the kept
            raise self.not_finite(x, step)
        if self.dtype == torch.float16:
            limit = torch.finfo(torch.float16).max
            values = values.clamp_(-limit, limit).to(torch.float16)
        write(message, write(message, 0, values), indices)
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        values = read(message, 0, self.total, self.dtype).to(torch.float32)
        indices = read(message, self.total * self.dtype.itemsize, self.total, torch.int32)
        dest.index_add_(0, indices, values if weight == 1.0 else values * weight)
