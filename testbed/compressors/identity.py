"""No compression: the reference for every other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.compressors.arrays import Scratch, read, write
from testbed.compressors.base import Codec, Compressor
from testbed.compressors.blocks import BLOCK
from testbed.flat import Layout


@dataclass(frozen=True)
class Identity(Compressor):
    """C(x) = x.

    Wire: d × fp32.
    """

    name = "identity"
    bias = "unbiased"

    @property
    def unbiased(self) -> bool:
        return True

    def bind(self, layout: Layout, seed: int) -> IdentityCodec:
        return IdentityCodec(layout)


class IdentityCodec(Codec):
    def __init__(self, layout: Layout) -> None:
        super().__init__(layout, 4 * layout.numel)
        self.scratch = Scratch()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        self.check_finite(x, step)
        write(message, 0, x)
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        values = read(message, 0, self.layout.numel, torch.float32)
        if weight == 1.0:
            dest += values
            return
        scratch = self.scratch("weighted", BLOCK, torch.float32, message.device)
        for start in range(0, self.layout.numel, BLOCK):
            part = values[start : start + BLOCK]
            dest[start : start + BLOCK] += torch.mul(part, weight, out=scratch[: part.numel()])
