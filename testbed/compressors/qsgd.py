"""QSGD: stochastic levels of the ℓ2-normalised vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.compressors.arrays import Noise16, Scratch, arrays, read, write
from testbed.compressors.base import Codec, Compressor, option
from testbed.compressors.blocks import BLOCK, Buckets, power_sums
from testbed.compressors.levels import FINE, fit, odd, round_into
from testbed.compressors.options import flag, whole
from testbed.compressors.packing import pack, unpack
from testbed.flat import Layout


@dataclass(frozen=True)
class Qsgd(Compressor):
    """s = 2^(bits−1) − 1 levels of magnitude and a sign, relative to the tensor's norm:

        C(x)_k = ‖x‖₂ · sign(x_k) · ξ_k/s,  ξ_k = ⌊s·|x_k|/‖x‖₂⌋ + Bernoulli(the fraction)

    Unbiased, with E‖e‖² ≤ min(d/s², √d/s)·‖x‖²: on a layer of 10⁴ elements "4 bit" is far noisier than min-max 4 bit.
    Scaled, it is C(x)/τ with τ = 1 + min(d/s², √d/s): biased, contracting with δ = 1/τ (CHOCO-SGD, arXiv 1902.00340).

    Wire: norm fp32 of every tensor (divided by τ if scaled) ‖ codes of `bits` bits (magnitude, sign in the top bit),
    tensor by tensor, each padded to a byte (packing.py).
    """

    name = "qsgd"
    paper = "Alistarh et al. 2017, arXiv 1610.02132"
    bias = "unbiased (scaled: biased)"
    short = "bits"

    bits: int = option(
        8,
        parse=whole(2, 8, unit="bit"),
        help="bits per element, sign included. If dcd or ecd diverge, take more, or quantize with the same bits",
    )
    scaled: bool = option(
        False,
        parse=flag,
        help="divide by τ so that the operator contracts: for choco and deepsqueeze. If those diverge unscaled, set it",
    )

    @property
    def unbiased(self) -> bool:
        return not self.scaled

    def bind(self, layout: Layout, seed: int) -> QsgdCodec:
        return QsgdCodec(self, layout, seed)


class QsgdCodec(Codec):
    def __init__(self, options: Qsgd, layout: Layout, seed: int) -> None:
        self.tensors = Buckets.of(layout, options.bits)
        super().__init__(layout, 4 * len(self.tensors) + self.tensors.payload)
        self.bits = options.bits
        self.top = 2 ** (options.bits - 1) - 1
        d = self.tensors.sizes.astype(np.float64)
        self.tau = 1 + np.minimum(d / self.top**2, np.sqrt(d) / self.top) if options.scaled else np.ones_like(d)
        self.seed = seed
        self.scratch = Scratch()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        squares = power_sums(x, self.tensors, 2, self.scratch)
        if not np.isfinite(squares).all():
            raise self.not_finite(x, step)
        # A norm beyond fp32 is clipped: any number at or above max |x| leaves the operator unbiased.
        norm = np.minimum(np.sqrt(squares), np.finfo(np.float32).max).astype(np.float32).astype(np.float64)
        payload = write(message, 0, (norm / self.tau).astype(np.float32))

        factor = fit(norm, self.top * FINE)
        strange = odd(norm)
        noise = Noise16(self.seed, step, x.device)
        xp, xs, packed, codes, signs, scaled, drawn = arrays(x, message[payload:], *self._scratch(x.device))
        for block in self.tensors.blocks:
            source, levels = xs[block.start : block.stop], scaled[: block.size]
            if strange[block.first]:
                source = xp.asarray(source, dtype=xp.float64)
                levels = xp.empty_like(source)
            code, sign = codes[: block.size], signs[: block.size]
            xp.abs(source, out=levels)
            levels *= float(factor[block.first])
            round_into(xp, levels, noise.take(block.size), drawn[: block.size], code)
            sign[...] = source < 0
            sign <<= self.bits - 1
            code |= sign
            pack(xp, codes, block.size, self.bits, packed[block.at : block.end])
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        norm = read(message, 0, len(self.tensors), torch.float32).cpu().numpy().astype(np.float64)
        strange = odd(norm, weight)
        scale = norm * (weight / self.top)
        xp, packed, target, codes, signs, scaled, _ = arrays(
            message[4 * len(self.tensors) :], dest, *self._scratch(message.device)
        )
        for block in self.tensors.blocks:
            unpack(xp, packed[block.at : block.end], block.size, self.bits, codes)
            code, sign = codes[: block.size], signs[: block.size]
            sign[...] = code
            sign >>= self.bits - 1
            sign *= 255
            code &= self.top
            code ^= sign  # two's complement: flip the bits and add one where negative
            code -= sign
            if strange[block.first]:
                values = xp.asarray(code.view(xp.int8), dtype=xp.float64)
            else:
                values = scaled[: block.size]
                values[...] = code.view(xp.int8)
            values *= float(scale[block.first])
            target[block.start : block.stop] += values

    def _scratch(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return (
            self.scratch("codes", BLOCK, torch.uint8, device),
            self.scratch("signs", BLOCK, torch.uint8, device),
            self.scratch("levels", BLOCK, torch.float32, device),
            self.scratch("drawn", BLOCK, torch.float32, device),
        )
