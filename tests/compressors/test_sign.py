"""Sign: zero counts as positive at both ends, and the scale is each tensor's own."""

from __future__ import annotations

import torch

from testbed.flat import Layout

from .examples import gaussian, round_trip


def test_zero_is_positive() -> None:
    assert round_trip("sign", torch.tensor([0.0, -0.0, -3.0, 1.0])).tolist() == [1.0, 1.0, -1.0, 1.0]


def test_scale_is_the_mean_magnitude_of_each_tensor() -> None:
    layout = Layout.of([("a", (70_001,)), ("b", (3,)), ("c", (40_000,))])
    x = gaussian(layout)
    x[70_001:70_004] = torch.tensor([3.0, -6.0, 9.0])
    got = round_trip("sign", x, layout)
    assert got[70_001:70_004].tolist() == [6.0, -6.0, 6.0]
    for start, stop in ((0, 70_001), (70_004, 110_004)):
        scale = x[start:stop].abs().double().mean().float()
        assert torch.equal(got[start:stop], torch.where(x[start:stop] >= 0, scale, -scale))
