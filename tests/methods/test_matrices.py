"""Batches of matrices in a flat buffer, and orthonormal rows made from anything."""

from __future__ import annotations

import pytest
import torch

from testbed.flat import Layout
from testbed.methods.matrices import Matrices, batches, vectors
from testbed.methods.orthonormal import orthonormalise


def test_blocks_at_equal_distances_become_one_batch():
    block = [("conv", (4, 3, 1, 2)), ("scale", (4,)), ("shift", (4,))]
    layout = Layout.of([("stem", (4, 6)), *(block * 3), ("head", (5, 4)), ("bias", (5,))])
    assert batches(layout) == (Matrices(0, 24, 2, 4, 6), Matrices(56, 32, 2, 4, 6), Matrices(120, 20, 1, 5, 4))
    assert vectors(layout).tolist() == [*range(48, 56), *range(80, 88), *range(112, 120), *range(140, 145)]


def test_every_matrix_is_seen_once_and_in_place():
    shapes = {"a": (2, 3), "b": (7,), "c": (3, 2), "d": (2, 3), "e": (), "f": (2, 3), "g": (2, 3), "h": (0, 3)}
    layout = Layout.of(shapes.items())
    flat = torch.arange(float(layout.numel))
    for batch in batches(layout):
        batch.of(flat).add_(1000)
    flat[vectors(layout)] += 2000
    for slot, view in zip(layout.slots, layout.views(flat), strict=True):
        offset = 1000 if len(slot.shape) > 1 else 2000
        expected = torch.arange(float(slot.start), float(slot.stop)).view(slot.shape) + offset
        assert torch.equal(view, expected), slot.name


def never() -> torch.Tensor:
    raise AssertionError("nothing had to be drawn anew")


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_rows_become_orthonormal(rank):
    v = torch.randn(3, rank, 5, generator=torch.Generator().manual_seed(0))
    span = v.clone()
    orthonormalise(v, never)
    torch.testing.assert_close(v @ v.mT, torch.eye(rank).expand(3, -1, -1), atol=1e-6, rtol=0)
    inside = span - (span @ v.mT) @ v
    assert inside.abs().max() < 1e-5  # the same space is spanned


def test_lengths_do_not_matter():
    v = torch.randn(1, 2, 50, generator=torch.Generator().manual_seed(0))
    tiny, huge = v * 1e-15, v * 1e15
    for scaled in (v, tiny, huge):
        orthonormalise(scaled, never)
    torch.testing.assert_close(tiny, v)
    torch.testing.assert_close(huge, v)


def test_nearly_parallel_rows_become_orthonormal():
    v = torch.randn(1, 1, 100, generator=torch.Generator().manual_seed(0)).repeat(1, 3, 1)
    v[0, 1, 0] += 0.01
    v[0, 2, 1] += 0.01
    orthonormalise(v, never)
    torch.testing.assert_close(v @ v.mT, torch.eye(3)[None], atol=1e-5, rtol=0)


@pytest.mark.parametrize("case", ["zero", "parallel", "vanishing"])
def test_rows_without_direction_are_replaced(case):
    """Only these; the others of the batch stay as they are."""
    v = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(0))
    v[0, 1] = {"zero": v[0, 1] * 0, "parallel": v[0, 0] * 2, "vanishing": v[0, 1] * 1e-30}[case]
    other = v[1:].clone()
    anew = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(1))
    orthonormalise(v, lambda: anew)
    orthonormalise(other, never)
    torch.testing.assert_close(v @ v.mT, torch.eye(2).expand(2, -1, -1), atol=1e-6, rtol=0)
    torch.testing.assert_close(v[1:], other)
    along = anew[0, 1] - (anew[0, 1] @ v[0, 0]) * v[0, 0]
    torch.testing.assert_close(v[0, 1], along / along.norm())
