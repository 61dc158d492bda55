from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from testbed.tasks.batches import MARGIN, Order, Streams, crop_and_flip


@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 1000))
def test_every_sample_is_seen_once_an_epoch(samples: int, batch: int, seed: int) -> None:
    own = np.arange(samples) * 3
    order = Order.of_worker(own, batch, seed, rank=2)
    epochs = 5
    seen = np.concatenate([order(step) for step in range(-(-samples * epochs // batch))])[: samples * epochs]
    for epoch in seen.reshape(epochs, samples):
        assert sorted(epoch) == own.tolist()


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 5))
def test_reshuffling_deals_every_sample_once_an_epoch(samples: int, batch: int, size: int) -> None:
    orders = [Order.of_all(samples, batch, 7, rank, size) for rank in range(size)]
    steps = -(-2 * samples // (batch * size))
    seen = np.concatenate([order(step) for step in range(steps) for order in orders])[: 2 * samples]
    assert sorted(seen[:samples]) == list(range(samples))
    assert sorted(seen[samples:]) == list(range(samples))


def test_a_batch_depends_on_seed_rank_and_step_only() -> None:
    own = np.arange(100)
    ahead = Order.of_worker(own, 8, 1, 0)
    later = [ahead(step) for step in range(60)]
    fresh = Order.of_worker(own, 8, 1, 0)
    for step in (59, 3, 12, 13, 0):  # in any order, from any start
        assert np.array_equal(fresh(step), later[step])
    assert not np.array_equal(Order.of_worker(own, 8, 1, 1)(0), later[0])
    assert not np.array_equal(Order.of_worker(own, 8, 2, 0)(0), later[0])
    assert not np.array_equal(np.sort(later[0]), np.sort(later[13])), "epochs are shuffled anew"


def test_streams_advance_through_contiguous_text() -> None:
    streams = Streams(np.arange(10, 31), 4)  # 21 samples, 5 for each stream, one left over
    assert streams.length == 5
    assert streams(0).tolist() == [10, 15, 20, 25]
    assert streams(4).tolist() == [14, 19, 24, 29]
    assert streams(5).tolist() == streams(0).tolist()
    assert [streams.starts(step) for step in (0, 1, 5)] == [True, False, True]


def test_crops_are_shifts_over_black_and_some_are_mirrored() -> None:
    images = np.random.default_rng(0).integers(1, 255, (64, 12, 10, 3)).astype(np.uint8)
    varied = crop_and_flip(images, seed=5)
    assert varied.shape == images.shape
    assert varied.dtype == np.uint8
    padded = np.pad(images, ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN), (0, 0)))
    mirrored = 0
    for image, around in zip(varied, padded, strict=True):
        found = []
        for flipped, source in ((False, around), (True, around[:, ::-1])):
            for top in range(2 * MARGIN + 1):
                for left in range(2 * MARGIN + 1):
                    if np.array_equal(image, source[top : top + 12, left : left + 10]):
                        found.append(flipped)
        assert len(found) == 1, "not a crop of the image or of its mirror image"
        mirrored += found[0]
    assert 16 < mirrored < 48
    assert np.array_equal(varied, crop_and_flip(images, seed=5))
    assert not np.array_equal(varied, crop_and_flip(images, seed=6))
