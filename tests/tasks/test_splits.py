from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.tasks import splits

labelled = st.tuples(
    st.integers(1, 12),  # workers
    st.integers(0, 200),  # samples beyond one for each worker
    st.integers(1, 10),  # labels
    st.integers(0, 2**32),
)


def labels_of(count: int, kinds: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, kinds, count)


def assert_partition(parts: list[np.ndarray], samples: int, size: int) -> None:
    assert len(parts) == size
    assert all(len(part) for part in parts), "a worker is empty"
    assert sorted(np.concatenate(parts).tolist()) == list(range(samples))
    assert all(np.all(np.diff(part) > 0) for part in parts), "not sorted"


@given(labelled)
def test_iid_gives_everyone_the_same_amount(case: tuple[int, int, int, int]) -> None:
    size, more, _, seed = case
    parts = splits.iid(size + more, size, seed)
    assert_partition(parts, size + more, size)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(labelled)
def test_contiguous_keeps_the_order(case: tuple[int, int, int, int]) -> None:
    size, more, _, _ = case
    parts = splits.contiguous(size + more, size)
    assert_partition(parts, size + more, size)
    assert np.concatenate(parts).tolist() == list(range(size + more))


@given(labelled, st.sampled_from([1e-3, 0.05, 0.5, 1.0, 100.0]))
def test_dirichlet_is_a_partition(case: tuple[int, int, int, int], alpha: float) -> None:
    size, more, kinds, seed = case
    assert_partition(splits.dirichlet(labels_of(size + more, kinds, seed), size, alpha, seed), size + more, size)


@given(labelled, st.integers(1, 4))
def test_shards_are_a_partition(case: tuple[int, int, int, int], per_worker: int) -> None:
    size, more, kinds, seed = case
    samples = size * per_worker + more
    assert_partition(splits.shards(labels_of(samples, kinds, seed), size, per_worker, seed), samples, size)


@given(st.integers(1, 8), st.lists(st.integers(0, 20), min_size=1, max_size=200))
def test_by_source_keeps_sources_together(size: int, sources: list[int]) -> None:
    if len(set(sources)) < size:
        with pytest.raises(ScenarioError, match="sources are too few"):
            splits.by_source(np.array(sources), size)
        return
    parts = splits.by_source(np.array(sources), size)
    assert_partition(parts, len(sources), size)
    owners = [{worker for worker, part in enumerate(parts) if name in np.array(sources)[part]} for name in set(sources)]
    assert all(len(owner) == 1 for owner in owners)


def test_shards_bound_the_labels_of_a_worker() -> None:
    labels = labels_of(1000, 10, 3)
    balanced = np.sort(np.arange(1000) % 10)
    parts = splits.shards(balanced, 10, 2, 0)
    assert all(len(set(balanced[part])) <= 2 for part in parts)
    assert len(set(labels[splits.iid(1000, 10, 0)[0]])) == 10


def test_small_alpha_concentrates_labels_and_large_alpha_does_not() -> None:
    labels = np.arange(5000) % 10

    def largest_share(alpha: float) -> float:
        parts = splits.dirichlet(labels, 8, alpha, 1)
        return float(np.mean([np.bincount(labels[part]).max() / len(part) for part in parts]))

    assert largest_share(1000.0) < 0.15
    assert 0.25 < largest_share(0.5) < 0.7
    assert largest_share(0.01) > 0.6


def test_splits_depend_on_the_seed_alone() -> None:
    labels = np.arange(500) % 10
    for split in (
        lambda seed: splits.iid(500, 4, seed),
        lambda seed: splits.dirichlet(labels, 4, 0.5, seed),
        lambda seed: splits.shards(labels, 4, 2, seed),
    ):
        same = [np.array_equal(a, b) for a, b in zip(split(1), split(1), strict=True)]
        other = [np.array_equal(a, b) for a, b in zip(split(1), split(2), strict=True)]
        assert all(same)
        assert not all(other)


def test_too_few_samples_say_so() -> None:
    with pytest.raises(ScenarioError, match="3 samples are too few for 4 workers"):
        splits.iid(3, 4, 0)
    with pytest.raises(ScenarioError, match=r"7 samples are too few for 4 workers × 2 shards"):
        splits.shards(np.zeros(7), 4, 2, 0)
