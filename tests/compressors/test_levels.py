"""Rounding to levels: factors never lead beyond the top level, whatever fp32 rounds to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.compressors.levels import FINE, NARROWEST, WIDEST, fit, odd

from .examples import round_trip

TOP = 255 * FINE


def widths() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.exp(np.random.default_rng(0).uniform(-60, 80, 20_000)).astype(np.float32)


@pytest.mark.parametrize("top", [1, 15, 255, FINE, 127 * FINE, TOP])
def test_the_widest_value_stays_at_or_below_the_top(top: int) -> None:
    width = widths()
    reached = width * fit(width.astype(np.float64), top).astype(np.float32)
    assert (reached <= top).all()
    assert (reached >= top * (1 - 2.0**-21)).all()


def test_extreme_widths_are_left_to_fp64() -> None:
    width = np.array([0.0, 1e-45, NARROWEST / 2, 1.0, WIDEST * 2, 6.8e38])
    assert odd(width).tolist() == [False, True, True, False, True, True]
    assert odd(width, weight=1e-30).tolist() == [False, True, True, True, True, True]
    assert np.allclose(width * fit(width, TOP), np.where(width > 0, TOP, 0))


def test_two_million_maxima_never_wrap_to_the_minimum() -> None:
    """The plain factor top/width takes some maxima a unit too high: with the largest noise they would wrap."""
    width = widths()
    plain = (TOP / width.astype(np.float64)).astype(np.float32)
    risky = width[(width * plain > TOP) & (width > 1e-20) & (width < 1e20)][:3]
    assert len(risky) == 3
    for high in risky.tolist():
        x = torch.full((2_000_000,), high)
        x[0] = 0.0
        assert float(round_trip({"quantize": 8}, x)[1:].min()) >= high * (1 - 1.1 / 255)
