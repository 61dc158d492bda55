"""The absolute grid: error bound, range, and what happens beyond."""

from __future__ import annotations

import pytest
import torch

from testbed.compressors import make
from testbed.errors import TrainingError
from testbed.flat import Layout

from .examples import gaussian, round_trip

LAYOUT = Layout.of([("small", (3,)), ("large", (4,))])


def test_error_is_absolute() -> None:
    """E‖e‖² ≤ dΔ²/4 whatever the size of the values; about dΔ²/6 where they lie anywhere between the levels."""
    layout = Layout.of([("x", (20_000,))])
    for scale in (0.3, 3.0):
        x = gaussian(layout, 1, scale).clamp(-12, 12)
        error = round_trip({"step": 0.1}, x) - x
        assert float(error.square().mean()) == pytest.approx(0.1**2 / 6, rel=0.05)
        assert float(error.abs().max()) <= 0.1 + 1e-6


def test_out_of_range_names_the_tensor_and_the_way_out() -> None:
    x = torch.tensor([0.1, 0.1, 0.1, 0.0, -13.0, 5.0, 0.0])
    with pytest.raises(TrainingError, match=r"large reaches 13 at step 8, beyond the ±12.7") as caught:
        make({"step": 0.1}).bind(LAYOUT, 0).compress(x, 8)
    assert "a step of at least 0.1" in str(caught.value.hint)
    assert "bits" in str(caught.value.hint)


def test_more_bits_reach_further() -> None:
    x = torch.tensor([3000.0, -3276.7, 0.0])
    assert torch.allclose(round_trip({"step": {"step": 0.1, "bits": 16}}, x), x, atol=0.1)
    far = torch.tensor([2.1e8, -2.1e8, 1.0])
    assert torch.allclose(round_trip({"step": {"step": 0.1, "bits": 32}}, far), far, atol=0.1, rtol=1e-6)


def test_the_ends_of_the_range_do_not_wrap() -> None:
    for bits in (8, 16, 32):
        top = 0.3 * (2 ** (bits - 1) - 1)
        x = torch.tensor([top, -top] * 500).nextafter(torch.tensor(0.0))
        got = round_trip({"step": {"step": 0.3, "bits": bits}}, x)
        assert torch.allclose(got, x, atol=0.3001, rtol=1e-6)


def test_clip_saturates() -> None:
    got = round_trip({"step": {"step": 0.5, "overflow": "clip"}}, torch.tensor([1e9, -1e9, 1.5]))
    assert got.tolist() == [63.5, -63.5, 1.5]
