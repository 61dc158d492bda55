"""Quantization with a fixed absolute step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from testbed.compressors.arrays import Noise16, Scratch, arrays, read, write
from testbed.compressors.base import Codec, Compressor, option
from testbed.compressors.blocks import BLOCK
from testbed.compressors.levels import FINE
from testbed.compressors.options import choice, positive
from testbed.errors import TrainingError
from testbed.flat import Layout

_CODES = {8: torch.int8, 16: torch.int16, 32: torch.int32}


@dataclass(frozen=True)
class Step(Compressor):
    """A grid of fixed step Δ, whatever the values are:

        C(x) = Δ·(⌊x/Δ⌋ + Bernoulli(x/Δ − ⌊x/Δ⌋))     unbiased, E‖e‖² ≤ d·Δ²/4 absolutely

    which is the error bound that the theory of ECD-PSGD asks for; min-max and norm-scaled quantizers do not have it.
    The grid is unbounded but messages have a fixed size: levels are signed integers of `bits` bits, so the range is
    ±Δ·(2^(bits−1) − 1), unbiased inside. A value beyond it stops the run with the Δ or width that would hold it, or,
    by choice, is clipped.

    Wire: d × int8, int16 or int32 levels; Δ is in the scenario, not on the wire.
    """

    name = "step"
    paper = "Tang et al. 2018, arXiv 1803.06443"
    bias = "unbiased (in range)"
    short = "step"

    step: float = option(
        parse=positive,
        example=0.01,
        help="Δ, in units of the values sent. If the loss floor is too high, halve it; if values leave the range,"
        " double it or take more bits",
    )
    bits: int = option(
        8,
        parse=choice(8, 16, 32),
        help="width of a level on the wire: 8 reaches ±127·Δ, 16 ±32767·Δ, 32 ±2147483647·Δ",
    )
    overflow: str = option(
        "error",
        parse=choice("error", "clip"),
        help="what happens beyond the range: error stops the run; clip saturates, which is biased, for values that"
        " leave it for a few steps only",
    )

    @property
    def unbiased(self) -> bool:
        return self.overflow == "error"

    def bind(self, layout: Layout, seed: int) -> StepCodec:
        return StepCodec(self, layout, seed)


class StepCodec(Codec):
    """Works in fp64: with 32-bit levels the fraction of x/Δ would not survive in fp32."""

    def __init__(self, options: Step, layout: Layout, seed: int) -> None:
        super().__init__(layout, layout.numel * options.bits // 8)
        self.options = options
        self.top = 2 ** (options.bits - 1) - 1
        self.seed = seed
        self.scratch = Scratch()

    def compress(self, x: Tensor, step: int, out: Tensor | None = None) -> Tensor:
        x, message = self.outgoing(x, out)
        if self.layout.numel == 0:
            return message
        clip = self._out_of_range(x, step)
        noise = Noise16(self.seed, step, x.device)
        codes = self.scratch("codes", BLOCK, _CODES[self.options.bits], x.device)
        scaled, drawn = (self.scratch(role, BLOCK, torch.float64, x.device) for role in ("levels", "drawn"))
        xp, xs, integers, levels, fractions = arrays(x, codes, scaled, drawn)
        for start in range(0, self.layout.numel, BLOCK):
            size = min(BLOCK, self.layout.numel - start)
            part, fraction = levels[:size], fractions[:size]
            part[...] = xs[start : start + size]
            part *= FINE / self.options.step
            if clip:
                xp.clip(part, -self.top * FINE, self.top * FINE, out=part)
            fraction[...] = noise.take(size)
            part += fraction
            part *= 1 / FINE
            xp.floor(part, out=part)
            integers[:size] = part
            write(message, start * self.options.bits // 8, codes[:size])
        return message

    def decompress_into(self, message: Tensor, dest: Tensor, weight: float = 1.0) -> None:
        message, dest = self.incoming(message, dest)
        levels = read(message, 0, self.layout.numel, _CODES[self.options.bits])
        values = self.scratch("values", BLOCK, torch.float64, message.device)
        _, levels, target, scaled = arrays(levels, dest, values)
        for start in range(0, self.layout.numel, BLOCK):
            part = scaled[: min(BLOCK, self.layout.numel - start)]
            part[...] = levels[start : start + BLOCK]
            part *= self.options.step * weight
            target[start : start + BLOCK] += part

    def _out_of_range(self, x: Tensor, step: int) -> bool:
        """Whether x must be clipped; raises where it must not be."""
        largest = max(-float(x.amin()), float(x.amax()))
        if largest <= self.options.step * self.top:
            return False
        if not largest < torch.inf:  # NaN comes out of amin and amax too
            raise self.not_finite(x, step)
        if self.options.overflow == "clip":
            return True
        worst = next(s for s in self.layout.slots if float(x[s.start : s.stop].abs().amax()) == largest)
        raise TrainingError(
            f"{worst.name} reaches {largest:.3g} at step {step}, beyond the ±{self.options.step * self.top:.3g} of"
            f" compressor {self.options}",
            hint=f"use a step of at least {largest / self.top:.2g}, more bits (8, 16 or 32), or overflow: clip",
        )
