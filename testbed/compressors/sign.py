"""One bit per element and a scale per tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.compressors.arrays import Scratch, arrays, read, write
from testbed.compressors.base import Codec, Compressor
from testbed.compressors.blocks import BLOCK, Buckets, power_sums
from testbed.compressors.packing import pack, unpack
from testbed.flat import Layout


@dataclass(frozen=True)
class Sign(Compressor):
    """The sign, scaled to the tensor's mean magnitude, with sign(0) = +1 at both ends:

        C(x) = (‖x‖₁/d)·sign(x)

    Biased; contracts with δ = ‖x‖₁²/(d‖x‖₂²), which is 2/π on Gaussian values. It has no hyper-parameters: if a method
    diverges with it, lower the method's gamma.

    Wire: scale fp32 of every tensor ‖ one bit per element over the concatenated vector, padded once; 1 means x ≥ 0.
    """

    name = "sign"
    paper = "Karimireddy et al. 2019, arXiv 1901.09847"

    def bind(self, layout: Layout, seed: int) -> SignCodec:
        return SignCodec(layout)


class SignCodec(Codec):
    def __init__(self, layout: Layout) -> None:
        self.tensors = Buckets.of(layout, bits=1)
        super().__init__(layout, 4 * len(self.tensors) + -(-layout.numel // 8))
        self.pieces = list(_pieces(self.tensors, layout.numel))
        self.scratch = Scratch()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        sums = power_sums(x, self.tensors, 1, self.scratch)
        if not np.isfinite(sums).all():
            raise self.not_finite(x, step)
        payload = write(message, 0, (sums / self.tensors.sizes).astype(np.float32))
        xp, xs, packed, bits = arrays(x, message[payload:], self.scratch("bits", BLOCK, torch.uint8, x.device))
        for start in range(0, self.layout.numel, BLOCK):
            part = xs[start : start + BLOCK]
            bits[: len(part)] = part >= 0
            pack(xp, bits, len(part), 1, packed[start // 8 : (start + BLOCK) // 8])
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        scale: NDArray[np.float32] = read(message, 0, len(self.tensors), torch.float32).cpu().numpy()
        scales = (scale * weight).tolist()
        xp, packed, target, bits, signs = arrays(
            message[4 * len(self.tensors) :],
            dest,
            self.scratch("bits", BLOCK, torch.uint8, message.device),
            self.scratch("signs", BLOCK, torch.float32, message.device),
        )
        for start, pieces in zip(range(0, self.layout.numel, BLOCK), self.pieces, strict=True):
            size = min(BLOCK, self.layout.numel - start)
            unpack(xp, packed[start // 8 : (start + BLOCK) // 8], size, 1, bits)
            bits += bits
            bits -= 1  # 1 → 1 and 0 → 255, which is −1 as a signed byte
            signs[...] = bits.view(xp.int8)
            for first, last, tensor in pieces:
                signs[first:last] *= scales[tensor]
            target[start : start + size] += signs[:size]


def _pieces(tensors: Buckets, numel: int) -> Iterator[list[tuple[int, int, int]]]:
    """For each block of the concatenated vector: which of its elements belong to which tensor."""
    for start in range(0, numel, BLOCK):
        stop = min(start + BLOCK, numel)
        inside = np.flatnonzero((tensors.starts < stop) & (tensors.starts + tensors.sizes > start))
        yield [
            (max(first, start) - start, min(first + size, stop) - start, tensor)
            for tensor, first, size in zip(
                inside.tolist(), tensors.starts[inside].tolist(), tensors.sizes[inside].tolist(), strict=True
            )
        ]
