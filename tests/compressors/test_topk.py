"""Top-k is exact, per tensor, and breaks ties alike everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from testbed.compressors import make
from testbed.compressors.selection import Largest, largest_torch
from testbed.errors import ScenarioError
from testbed.flat import Layout

from .examples import gaussian, round_trip

largest = Largest()


def by_sorting(keys: NDArray[np.int32], k: int) -> list[int]:
    """The definition: largest first, lowest index first among equals."""
    return sorted(sorted(range(len(keys)), key=lambda i: (-int(keys[i]), i))[:k])


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=60), st.data())
def test_small_pools_with_many_ties(values: list[int], data: st.DataObject) -> None:
    keys = np.array(values, np.int32)
    k = data.draw(st.integers(1, len(keys)))
    assert largest(keys, k).tolist() == by_sorting(keys, k)
    assert largest_torch(torch.from_numpy(keys), k).tolist() == by_sorting(keys, k)


def large_keys() -> dict[str, NDArray[np.int32]]:
    rng = np.random.default_rng(0)
    n = 200_003
    spread = rng.integers(0, 2**31, n, dtype=np.int64).astype(np.int32)
    unseen = np.zeros(n, np.int32)
    stride = n // 4096 | 1
    places = np.arange(n) % stride == 1  # the sample looks at multiples of the stride only
    unseen[places] = spread[places]
    rare = np.zeros(n, np.int32)
    rare[rng.choice(n, 20, replace=False)] = 7
    return {
        "spread": spread,
        "ascending": np.sort(spread),
        "few values": spread % 5,
        "all equal": np.full(n, 3, np.int32),
        "zeros": np.zeros(n, np.int32),
        "the sample sees only zeros": unseen,
        "the sample sees only the large": np.where(np.arange(n) % stride == 0, 2**30 + spread % 9, spread % 1000),
        "fewer than k not zero": rare,
    }


@pytest.mark.parametrize("name", large_keys())
@pytest.mark.parametrize("k", [1, 2, 200, 2_000, 20_000, 199_000, 200_003])
def test_large_pools(name: str, k: int) -> None:
    keys = large_keys()[name].astype(np.int32)
    expected = np.sort(np.lexsort((np.arange(len(keys)), -keys.astype(np.int64)))[:k])
    assert (largest(keys, k) == expected).all()


def test_a_good_sample_leaves_few_candidates() -> None:
    keys = large_keys()["spread"]
    passed = largest.candidates(keys, 2_000)
    assert passed is not None
    assert 2_000 <= len(passed) < 6_000


def test_a_sample_that_misleads_is_noticed() -> None:
    assert largest.candidates(large_keys()["the sample sees only the large"].astype(np.int32), 20_000) is None


def test_every_tensor_sends_its_own() -> None:
    """A small tensor of small values is not starved by a large one."""
    layout = Layout.of([("large", (1000,)), ("small", (4,))])
    x = gaussian(layout)
    x[1000:] = torch.tensor([1e-6, -3e-6, 2e-6, 0])
    got = round_trip({"topk": "1%"}, x, layout)
    assert got[1000:].tolist() == [0, pytest.approx(-3e-6), 0, 0]
    top = x[:1000].abs().topk(10)
    assert sorted(got[:1000].nonzero().flatten().tolist()) == sorted(top.indices.tolist())
    assert torch.equal(got[top.indices], x[top.indices])


def test_indices_do_not_fit_in_a_float() -> None:
    """Above 2^24 an fp32 index would be off by one; ours are integers."""
    n = 2**24 + 4
    x = torch.zeros(n)
    x[2**24 + 1] = 5.0
    got = round_trip({"topk": 1e-9}, x)
    assert got.nonzero().flatten().tolist() == [2**24 + 1]


def test_models_beyond_the_indices_are_refused() -> None:
    with pytest.raises(ScenarioError, match="32-bit indices"):
        make("topk").bind(Layout.of([("x", (2**31,))]), 0)


def test_fp16_values_saturate() -> None:
    got = round_trip({"topk": {"fraction": 1.0, "values": "fp16"}}, torch.tensor([1e6, -2.0]))
    assert got.tolist() == [65_504, -2.0]
