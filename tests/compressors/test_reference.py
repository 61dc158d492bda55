"""Relative squared errors on N(0, I): the measured table of algorithms.md §2, within 3 %."""

from __future__ import annotations

from statistics import mean

import pytest
import torch

from testbed.compressors import make
from testbed.flat import Layout

from .examples import decoded, gaussian

D = Layout.of([("x", (10_000,))])
DRAWS = 20


def error(spec: object, seed: int) -> float:
    x = gaussian(D, seed)
    codec = make(spec).bind(D, seed)
    return float((decoded(codec, codec.compress(x, seed)) - x).square().sum() / x.square().sum())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("sign", 0.3632),
        ({"topk": "10%"}, 0.560),
        ({"topk": "1%"}, 0.915),
        ({"randomk": "10%"}, 0.900),
        ({"randomk": "1%"}, 0.990),
        ({"randomk": {"fraction": "1%", "unbiased": True}}, 98.9),
        # s = 127, 15 and 3; s = 255 would take nine bits
        ({"qsgd": 8}, 0.103),
        ({"qsgd": 5}, 4.33),
        ({"qsgd": 3}, 25.5),
        ({"qsgd": {"bits": 5, "scaled": True}}, 0.829),
        ({"qsgd": {"bits": 3, "scaled": True}}, 0.965),
        ({"quantize": 8}, 1.53e-4),
        ({"quantize": 4}, 0.0443),
        ({"quantize": 2}, 1.137),
        ({"quantize": {"bits": 4, "bucket": 512}}, 0.0276),
        ({"quantize": {"bits": 8, "rounding": "nearest"}}, 7.7e-5),
    ],
    ids=str,
)
def test_error_on_gaussian_values(spec: object, expected: float) -> None:
    assert mean(error(spec, seed) for seed in range(DRAWS)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("rank", "kept"), [(1, 0.038), (4, 0.141)])
def test_lowrank_finds_what_an_svd_finds(rank: int, kept: float) -> None:
    """The share of a 100×100 Gaussian matrix that the best rank-r approximation keeps, after warm-started steps."""
    layout = Layout.of([("M", (100, 100))])
    shares = []
    for seed in range(DRAWS):
        x = gaussian(layout, seed)
        codec = make({"lowrank": rank}).bind(layout, seed)
        for step in range(40):
            message = codec.compress(x, step)
        shares.append(1 - float((decoded(codec, message) - x).square().sum() / x.square().sum()))
        best = torch.linalg.svdvals(x.view(100, 100)).square()
        assert shares[-1] <= float(best[:rank].sum() / best.sum()) + 1e-6
    assert mean(shares) == pytest.approx(kept, rel=0.03)
