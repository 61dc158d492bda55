"""E[C(x)] = x for the compressors that say so: the mean of 10 000 draws within 4σ/√N."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.compressors import available, make
from testbed.compressors.registry import example
from testbed.flat import Layout

from .examples import EVERY, NAMES, decoded, gaussian

COPIES, STEPS = 40, 250


@pytest.mark.parametrize(
    "spec",
    [
        {"quantize": 8},
        {"quantize": 4},
        {"quantize": 1},
        {"quantize": {"bits": 3, "bucket": 8}},
        {"qsgd": 8},
        {"qsgd": 2},
        {"step": 0.2},
        {"step": {"step": 3e-4, "bits": 16}},
        {"step": {"step": 1e-6, "bits": 32}},
        {"randomk": {"fraction": 0.25, "unbiased": True}},
        {"randomk": {"fraction": 0.75, "unbiased": True}},
    ],
    ids=str,
)
def test_mean_of_many_draws(spec: object) -> None:
    """Draws differ by step, and by place in the message: 40 copies of two tensors, 250 steps."""
    one = Layout.of([("a", (13,)), ("b", (3, 5))])
    layout = Layout.of((f"{slot.name}{copy}", slot.shape) for copy in range(COPIES) for slot in one.slots)
    x = gaussian(one, 7, 0.5).clamp(-2, 2)
    codec = make(spec).bind(layout, seed=4)
    sums = torch.zeros(2, one.numel, dtype=torch.float64)
    for step in range(STEPS):
        got = decoded(codec, codec.compress(x.repeat(COPIES), step)).view(COPIES, -1).double()
        sums += torch.stack([got.sum(dim=0), got.square().sum(dim=0)])
    mean, square = sums / (COPIES * STEPS)
    sigma = (square - mean.square()).clamp_min(0).sqrt()
    tolerance = 4 * sigma / np.sqrt(COPIES * STEPS) + 1e-6 * x.abs().max()
    assert ((mean - x).abs() <= tolerance).all(), (mean - x).abs() / tolerance
    assert (sigma > 0).sum() >= one.numel - 8  # the extremes are exact; all else must really be rounded at random


@pytest.mark.parametrize(("bits", "fraction"), [(8, 0.3), (4, 0.001), (2, 0.9995)])
def test_a_level_comes_up_as_often_as_its_fraction_says(bits: int, fraction: float) -> None:
    """Two million draws at once: within 4σ of the mean, where 8-bit noise (off by up to 1/512 level) would not be."""
    top = 2**bits - 1
    x = torch.full((2_000_002,), fraction)
    x[0], x[-1] = 0.0, top
    codec = make({"quantize": bits}).bind(Layout.of([("x", x.shape)]), 3)
    dest = torch.zeros_like(x)
    codec.decompress_into(codec.compress(x, 0), dest)
    drawn = dest[1:-1].double()
    assert float(drawn.mean()) == pytest.approx(fraction, abs=4 * (fraction * (1 - fraction) / 2e6) ** 0.5 + 2**-16)
    assert float(drawn.var()) == pytest.approx(fraction * (1 - fraction), rel=0.1)


def test_which_ones_claim_it() -> None:
    claimed = {name for spec, name in zip(EVERY, NAMES, strict=True) if make(spec).unbiased}
    assert "quantize(bits=4)" in claimed
    assert "quantize(bits=8, rounding=nearest)" not in claimed
    assert "qsgd(bits=4, scaled=True)" not in claimed
    assert "randomk(fraction=0.1, unbiased=True)" in claimed
    assert make({"step": 0.1}).unbiased
    assert not make({"step": {"step": 0.1, "overflow": "clip"}}).unbiased
    for kind in available().values():
        assert kind.bias.startswith("unbiased") == example(kind).unbiased, kind.name
