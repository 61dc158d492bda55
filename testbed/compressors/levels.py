"""Rounding to whole levels and back, shared by the quantizing codecs (quantize, qsgd, step).

Stochastic rounding adds 16-bit noise in units of 2⁻¹⁶ level and cuts off: a level comes up with probability
⌊2¹⁶·fraction⌋/2¹⁶, so the mean is off by less than 2⁻¹⁶ of a level (10⁴ draws could resolve about 2⁻⁶).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from testbed.compressors.arrays import Array

FINE = 65_536  # noise units per level

# Between these fp32 widths, (x − low)·factor and its way back neither overflow nor lose digits to denormals;
# outside, codecs work in fp64.
NARROWEST, WIDEST = 1e-28, 1e37


def odd(width: NDArray[np.float64], weight: float = 1.0) -> NDArray[np.bool_]:
    """Which buckets are too wide or too narrow for fp32 (a width of zero is fine: one level)."""
    scaled = np.abs(width * weight)
    return (width > 0) & ((np.minimum(scaled, width) < NARROWEST) | (np.maximum(scaled, width) > WIDEST))


def fit(width: NDArray[np.float64], top: float) -> NDArray[np.float64]:
    """Factors that map 0…width to 0…top and, where fp32 is used, never beyond top through rounding: a code one too high
    would spill into its neighbour. Zero width maps to 0."""
    strange = odd(width)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        exact = np.where(width > 0, top / width, 0.0)
        factor = exact.astype(np.float32)
        narrow = width.astype(np.float32)
        while (over := ~strange & (narrow * factor > top)).any():
            factor[over] = np.nextafter(factor[over], np.float32(0))
    return np.where(strange, exact, factor.astype(np.float64))


def round_into(xp: Array, levels: Array, noise: Array | None, drawn: Array, codes: Array) -> None:
    """codes = levels rounded: to the nearest, or stochastically where `levels` comes in noise units with their noise.
    Levels are at least 0; `levels` and `drawn` are scribbled over."""
    if noise is None:
        xp.round(levels, out=levels)
    else:
        drawn[...] = noise
        levels += drawn
        levels *= 1 / FINE
    codes[...] = levels
