"""Min-max details that the common tests do not see: the grid is exact, nothing wraps, buckets are local."""

from __future__ import annotations

import pytest
import torch

from testbed.compressors import make
from testbed.compressors.blocks import BLOCK, Buckets
from testbed.flat import Layout

from .examples import gaussian, round_trip


@pytest.mark.parametrize("bits", range(1, 9))
def test_values_on_the_grid_are_exact(bits: int) -> None:
    top = 2**bits - 1
    x = torch.arange(top + 1).repeat(300).float()
    for rounding in ("nearest", "stochastic"):
        assert torch.equal(round_trip({"quantize": {"bits": bits, "rounding": rounding}}, x), x)


def test_no_code_spills_over_at_the_maximum() -> None:
    """(max − min)·factor may round above the top level; such a code would wrap to the minimum."""
    for seed in range(200):
        scale = 10.0 ** (seed % 60 - 25)
        x = gaussian(Layout.of([("x", (3,))]), seed, scale).repeat(64)
        for spec in ({"quantize": 8}, {"quantize": {"bits": 8, "rounding": "nearest"}}, {"qsgd": 8}):
            step = (x.max() - x.min()) / 255 if "quantize" in spec else x.double().norm() / 127
            assert float((round_trip(spec, x, step=seed) - x).abs().max()) <= 1.001 * float(step)


def test_buckets_shield_each_other_from_outliers() -> None:
    x = gaussian(Layout.of([("x", (4096,))]))
    x[7] = 1000.0
    whole, local = (
        (round_trip({"quantize": {"bits": 4, "bucket": bucket}}, x) - x)[512:].square().mean() for bucket in (None, 512)
    )
    assert local < whole / 100


@pytest.mark.parametrize("bucket", [None, 8, 512, BLOCK, BLOCK + 8, 3 * BLOCK])
@pytest.mark.parametrize("size", [1, 7, 8, 513, BLOCK - 1, BLOCK + 1, 3 * BLOCK + 5])
def test_blocks_cover_every_element_and_byte_once(bucket: int | None, size: int) -> None:
    layout = Layout.of([("a", (size,)), ("b", (9,))])
    for bits in (1, 3, 8):
        buckets = Buckets.of(layout, bits, bucket)
        at = byte = 0
        for block in buckets.blocks:
            assert (block.start, block.at) == (at, byte)
            first, last = buckets.starts[block.first], buckets.starts[block.last - 1] + buckets.sizes[block.last - 1]
            assert first <= block.start < block.stop <= last
            if block.last - block.first > 1:  # rows of equal width
                assert len(set(buckets.sizes[block.first : block.last].tolist())) == 1
                assert (block.start, block.stop) == (first, last)
            at, byte = block.stop, block.end
        assert (at, byte) == (layout.numel, buckets.payload)
        assert buckets.payload == -(-size * bits // 8) + -(-9 * bits // 8)
        width = bucket or size
        assert len(buckets) == -(-size // width) + -(-9 // (bucket or 9))
        assert buckets.sizes.sum() == layout.numel


def test_bits_do_not_depend_on_the_block_size(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.of([("a", (1001,)), ("b", (50, 7))])
    x = gaussian(layout)
    for spec in ({"quantize": 3}, {"quantize": {"bits": 8, "bucket": 64}}, {"qsgd": 4}):
        large = make(spec).bind(layout, 1).compress(x, 0)
        monkeypatch.setattr("testbed.compressors.blocks.BLOCK", 128)
        small = make(spec).bind(layout, 1).compress(x, 0)
        monkeypatch.undo()
        assert torch.equal(large, small)
