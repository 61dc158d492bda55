"""Min-max quantization to 1…8 bits, per tensor or bucket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.compressors.arrays import Noise16, Scratch, arrays, read, write
from testbed.compressors.base import Codec, Compressor, option
from testbed.compressors.blocks import BLOCK, Buckets, column, extrema
from testbed.compressors.levels import FINE, fit, odd, round_into
from testbed.compressors.options import choice, optional, whole
from testbed.compressors.packing import pack, unpack
from testbed.flat import Layout


@dataclass(frozen=True)
class Quantize(Compressor):
    """2^bits equal steps between the smallest and the largest value ("random quantization" of DCD/ECD-PSGD):

        Δ = (max − min)/(2^bits − 1),  u = (x − min)/Δ
        C(x) = min + Δ·(⌊u⌋ + Bernoulli(u − ⌊u⌋))     stochastic: unbiased, E‖e‖² ≤ d·Δ²/4
        C(x) = min + Δ·round(u)                       nearest: ‖e‖∞ ≤ Δ/2, biased

    Wire: (min fp32, max fp32) of every tensor or bucket ‖ codes of `bits` bits, tensor by tensor, each padded to a
    byte (packing.py).
    """

    name = "quantize"
    paper = "Tang et al. 2018, arXiv 1803.06443"
    bias = "unbiased (nearest: biased)"
    short = "bits"

    bits: int = option(
        8,
        parse=whole(1, 8, unit="bit"),
        help="bits per element. Fewer are cheaper; if dcd or ecd diverge or choco needs a tiny gamma, take more",
    )
    rounding: str = option(
        "stochastic",
        parse=choice("stochastic", "nearest"),
        help="stochastic is unbiased; nearest has half the error and costs less time, for methods with error feedback",
    )
    bucket: int | None = option(
        None,
        parse=optional(whole(8, multiple=8)),
        help="elements per scale (8 bytes each); none: one scale per tensor. If a few outliers in a large tensor drown"
        " the rest (loss stalls at 4 bit, not at 8), try 512",
    )

    @property
    def unbiased(self) -> bool:
        return self.rounding == "stochastic"

    def bind(self, layout: Layout, seed: int) -> QuantizeCodec:
        return QuantizeCodec(self, layout, seed)


class QuantizeCodec(Codec):
    def __init__(self, options: Quantize, layout: Layout, seed: int) -> None:
        self.buckets = Buckets.of(layout, options.bits, options.bucket)
        super().__init__(layout, 8 * len(self.buckets) + self.buckets.payload)
        self.bits = options.bits
        self.stochastic = options.rounding == "stochastic"
        self.seed = seed
        self.scratch = Scratch()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        low, high = extrema(x, self.buckets)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise self.not_finite(x, step)
        payload = write(message, 0, np.stack([low, high], axis=1))

        lows, width = low.astype(np.float64), high.astype(np.float64) - low
        factor = fit(width, (2**self.bits - 1) * (FINE if self.stochastic else 1))
        strange = odd(width)
        noise = Noise16(self.seed, step, x.device) if self.stochastic else None
        xp, xs, packed, codes, scaled, drawn = arrays(x, message[payload:], *self._scratch(x.device))
        for block in self.buckets.blocks:
            rows = (block.last - block.first, -1)
            source = xs[block.start : block.stop].reshape(rows)
            levels = scaled[: block.size].reshape(rows)
            if strange[block.first : block.last].any():
                source = xp.asarray(source, dtype=xp.float64)
                levels = xp.empty_like(source)
            xp.subtract(source, column(xp, lows, block, source), out=levels)
            levels *= column(xp, factor, block, source)
            round_into(
                xp,
                levels,
                noise and noise.take(block.size).reshape(rows),
                drawn[: block.size].reshape(rows),
                codes[: block.size].reshape(rows),
            )
            pack(xp, codes, block.size, self.bits, packed[block.at : block.end])
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        scales: NDArray[np.float32] = read(message, 0, 2 * len(self.buckets), torch.float32).cpu().numpy()
        low = scales[0::2].astype(np.float64)
        width = scales[1::2] - low
        strange = odd(width, weight)
        step, low = width * (weight / (2**self.bits - 1)), low * weight
        xp, packed, target, codes, scaled, _ = arrays(
            message[8 * len(self.buckets) :], dest, *self._scratch(message.device)
        )
        for block in self.buckets.blocks:
            rows = (block.last - block.first, -1)
            unpack(xp, packed[block.at : block.end], block.size, self.bits, codes)
            levels = codes[: block.size].reshape(rows)
            if strange[block.first : block.last].any():
                values = xp.asarray(levels, dtype=xp.float64)
            else:
                values = scaled[: block.size].reshape(rows)
                values[...] = levels
            values *= column(xp, step, block, values)
            values += column(xp, low, block, values)
            target[block.start : block.stop] += values.reshape(-1)

    def _scratch(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.scratch("codes", BLOCK, torch.uint8, device),
            self.scratch("levels", BLOCK, torch.float32, device),
            self.scratch("drawn", BLOCK, torch.float32, device),
        )
