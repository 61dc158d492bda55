"""Half precision: fp16 and bf16."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.compressors.arrays import Scratch, read, write
from testbed.compressors.base import Codec, Compressor
from testbed.compressors.blocks import BLOCK
from testbed.flat import Layout


@dataclass(frozen=True)
class Fp16(Compressor):
    """C(x) = x rounded to the nearest IEEE half: relative error ≤ 2⁻¹¹ from 6.1e-5 to 65504, absolute ≤ 2⁻²⁵ below.

    Larger values saturate at ±65504; if yours do (gradients summed over many workers), use bf16.
    Wire: d × fp16.
    """

    name = "fp16"
    paper = "Micikevicius et al. 2018, arXiv 1710.03740"

    def bind(self, layout: Layout, seed: int) -> HalfCodec:
        return HalfCodec(layout, torch.float16)


@dataclass(frozen=True)
class Bf16(Compressor):
    """C(x) = x rounded to the nearest bfloat16: relative error ≤ 2⁻⁹ over the whole range of fp32.

    If consensus stalls at a relative error near 1e-3, the mantissa is too short: use fp16 or quantize 8bit differences.
    Wire: d × bf16.
    """

    name = "bf16"
    paper = "Kalamkar et al. 2019, arXiv 1905.12322"

    def bind(self, layout: Layout, seed: int) -> HalfCodec:
        return HalfCodec(layout, torch.bfloat16)


class HalfCodec(Codec):
    """Both formats; torch converts them faster than numpy."""

    def __init__(self, layout: Layout, dtype: torch.dtype) -> None:
        super().__init__(layout, 2 * layout.numel)
        self.dtype = dtype
        self.limit = torch.finfo(dtype).max
        self.scratch = Scratch()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        if self.layout.numel == 0:
            return message
        low, high = (float(value) for value in torch.aminmax(x))
        if not (abs(low) < torch.inf and abs(high) < torch.inf):
            raise self.not_finite(x, step)
        halves = self.scratch("halves", BLOCK, self.dtype, x.device)
        for start in range(0, self.layout.numel, BLOCK):
            part = x[start : start + BLOCK]
            if low < -self.limit or high > self.limit:
                part = part.clamp(-self.limit, self.limit)
            write(message, 2 * start, halves[: part.numel()].copy_(part))
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        halves = read(message, 0, self.layout.numel, self.dtype)
        scratch = self.scratch("values", BLOCK, torch.float32, message.device)
        for start in range(0, self.layout.numel, BLOCK):
            part = halves[start : start + BLOCK]
            values = scratch[: part.numel()].copy_(part)
            if weight != 1.0:
                values *= weight
            dest[start : start + BLOCK] += values
