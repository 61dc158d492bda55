"""Random-k: every subset equally likely, both ends agree, and the bias flag is obeyed."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch

from testbed.compressors import make
from testbed.compressors.randomk import subset
from testbed.flat import Layout

from .examples import MIXED, decoded, gaussian, round_trip


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_every_subset_is_equally_likely(k: int) -> None:
    words, room = np.random.SFC64(3), np.empty(5, np.bool_)
    draws = 6_000
    seen = Counter(tuple(subset(words, 5, k, room).tolist()) for _ in range(draws))
    expected = draws / len(list(combinations(range(5), k)))
    assert set(seen) == set(combinations(range(5), k))
    assert all(abs(count - expected) < 4.5 * expected**0.5 for count in seen.values()), seen


def test_all_is_all() -> None:
    assert subset(np.random.SFC64(0), 7, 7, np.empty(7, np.bool_)).tolist() == list(range(7))


def test_kept_values_are_exact_and_counted() -> None:
    x = gaussian(MIXED)
    got = round_trip({"randomk": 0.3}, x, MIXED)
    for slot in MIXED.slots:
        part = got[slot.start : slot.stop]
        kept = part != 0
        assert kept.sum() == max(1, int(0.3 * slot.numel))
        assert torch.equal(part[kept], x[slot.start : slot.stop][kept])


def test_unbiased_scales_by_d_over_k() -> None:
    x = torch.ones(10)
    assert sorted(round_trip({"randomk": {"fraction": 0.2, "unbiased": True}}, x).tolist()) == [0] * 8 + [5, 5]
    assert sorted(round_trip({"randomk": 0.2}, x).tolist()) == [0] * 8 + [1, 1]


def test_a_peer_needs_only_the_message() -> None:
    layout = Layout.of([("x", (500,))])
    x = gaussian(layout)
    sender, receiver = make({"randomk": 0.1}).bind(layout, 1), make({"randomk": 0.1}).bind(layout, 999)
    for step in range(4):
        message = sender.compress(x, step)
        assert torch.equal(decoded(sender, message), decoded(receiver, message))
