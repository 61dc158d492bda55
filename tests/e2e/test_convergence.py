"""Real training on digits with eight workers: methods agree where their papers say so, and break where they say so.

Seeds are fixed and all sums have a fixed order, so accuracies are the same each time on one machine; the bounds leave
room for machines that round differently.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from testbed.errors import TrainingError
from testbed.worker.job import Training
from testbed.worker.local import gossip_named, train_local

pytestmark = pytest.mark.slow

WORKERS = 8
TRAINING = Training(steps=150, lr=0.1, momentum=0.9, warmup=10, schedule="cosine")

AGREE: dict[str, Any] = {
    "ring": "ring",
    "allreduce 8 bit": {"allreduce": {"compressor": {"quantize": "8bit"}}},
    "ef_sign": "ef_sign",
    "dpsgd": "dpsgd",
    "dpsgd, order B": {"dpsgd": {"order": "B"}},
    "dcd 8 bit": {"dcd": {"compressor": {"quantize": "8bit"}}},
    "ecd 8 bit": {"ecd": {"compressor": {"quantize": "8bit"}}},
    "deepsqueeze sign": {"deepsqueeze": {"compressor": "sign"}},
    "choco sign": {"choco": {"compressor": "sign"}},
    "choco sign, icml": {"choco": {"compressor": "sign", "order": "icml"}},
    "choco top 10 %": {"choco": {"compressor": {"topk": "10%"}}},
    "powergossip, 2 iterations": {"powergossip": {"iterations": 2}},
}


def accuracy(method: Any) -> float:
    """The mean over the workers' own models."""
    results = train_local(WORKERS, method, "digits", gossip_named("ring", WORKERS, 1), TRAINING)
    found = [result.last("test_accuracy") for result in results]
    assert None not in found
    return sum(value for value in found if value is not None) / WORKERS


@cache
def all_reduce() -> float:
    return accuracy("allreduce")


def test_all_reduce_learns():
    assert all_reduce() > 0.97


@pytest.mark.parametrize("method", AGREE.values(), ids=list(AGREE))
def test_within_a_point_of_all_reduce(method):
    assert accuracy(method) > all_reduce() - 0.01


def test_naive_compression_at_2_bits_does_not_learn():
    assert accuracy({"naive": {"compressor": {"quantize": "2bit"}}}) < all_reduce() - 0.2


def test_ecd_at_4_bits_falls_behind():
    assert accuracy({"ecd": {"compressor": {"quantize": "4bit"}}}) < all_reduce() - 0.02


def test_ecd_at_2_bits_diverges():
    with pytest.raises(TrainingError, match="diverged"):
        accuracy({"ecd": {"compressor": {"quantize": "2bit"}}})
