"""The all-reduce baselines: models that stay equal to the last bit, the mean they compute, the bytes they send."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.compressors import make as compressor
from testbed.errors import TrainingError
from testbed.flat import Layout
from testbed.methods import make
from testbed.methods.ring import SMALLEST, Ring
from testbed.methods.shards import Shard, shards

from .harness import Cluster, complete, ring
from .quadratic import Quadratic

LAYOUT = Layout.of([("a", (8, 8)), ("b", (8,)), ("c", (5, 4)), ("d", (1,))])
KEEP_EQUAL = [
    "allreduce",
    {"allreduce": {"compressor": {"quantize": "8bit"}}},
    {"allreduce": {"compressor": {"quantize": "2bit"}}},
    {"allreduce": {"compressor": "sign"}},
    {"allreduce": {"compressor": {"lowrank": 1}}},
    "ring",
    "ef_sign",
    {"ef_sign": {"compressor": {"topk": "5%"}}},
]


def train(spec, n, steps, noise=0.0):
    problem = Quadratic.of(n, LAYOUT.numel, noise=noise)
    cluster = Cluster(make(spec), complete(n), torch.ones(LAYOUT.numel), problem.direction, lr=0.1, layout=LAYOUT)
    cluster.run(steps)
    return cluster, problem


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("spec", KEEP_EQUAL, ids=str)
def test_models_stay_equal(spec, n):
    cluster, _ = train(spec, n, 15, noise=1.0)
    for X in cluster.history:
        assert all(torch.equal(x, X[0]) for x in X)
    assert not torch.equal(cluster.history[0], cluster.history[-1])


@pytest.mark.parametrize("spec", ["allreduce", {"allreduce": {"compressor": {"quantize": "8bit"}}}, "ring"], ids=str)
def test_they_reach_the_optimum(spec):
    cluster, problem = train(spec, 4, 150)
    assert problem.suboptimality(cluster.X) < 1e-3


def test_a_compressed_mean_is_close_to_the_mean():
    exact, _ = train("allreduce", 8, 1)
    eight, _ = train({"allreduce": {"compressor": {"quantize": "8bit"}}}, 8, 1)
    step = (exact.X[0] - 1).abs().max()
    assert 0 < (eight.X[0] - exact.X[0]).abs().max() < 0.02 * step


def test_bytes_of_two_rounds():
    """Everybody sends its part of each other shard, and its own shard's mean to all."""
    cluster, _ = train({"allreduce": {"compressor": {"quantize": "8bit"}}}, 4, 1)
    quantize = compressor({"quantize": "8bit"})
    sizes = [quantize.bind(shard.layout(LAYOUT), 0).nbytes for shard in shards(0, LAYOUT.numel, 4)]
    assert cluster.world.sent == [sum(sizes) - sizes[k] + 3 * sizes[k] for k in range(4)]


def test_two_rounds_need_an_element_per_worker():
    with pytest.raises(TrainingError, match="cannot be shared out among 4 workers"):
        Cluster(make({"allreduce": {"compressor": "sign"}}), ring(4), torch.zeros(3))


def test_ddp_needs_a_module():
    with pytest.raises(TrainingError, match="ddp needs a task with a torch module"):
        Cluster(make("ddp"), ring(4), torch.zeros(3))


@pytest.mark.parametrize("d", [1, 3, 7, 100, 8 * SMALLEST + 5])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_ring_of_any_size(n, d):
    """More workers than elements, uneven shards, several segments in both directions."""
    G = np.random.default_rng(d).standard_normal((n, d)).astype(np.float32)
    cluster = Cluster(Ring(), ring(n), torch.zeros(d), lambda rank, step, x: torch.from_numpy(G[rank]), lr=1.0)
    X = cluster.run(2)
    assert all(torch.equal(x, X[0]) for x in X)
    np.testing.assert_allclose(X[0].numpy(), -2 * G.astype(np.float64).mean(0), rtol=0, atol=1e-6)
    padded = max(n, d)
    # 2(n−1) messages of a shard each, so 2(n−1)/n of the vector, give or take the last element of a shard
    segments = len(cluster.states[0].segments)
    assert all(abs(sent - 2 * 4 * 2 * (n - 1) * padded / n) <= 16 * 2 * n * segments for sent in cluster.world.sent)


def test_large_models_go_around_in_both_directions():
    cluster = Cluster(Ring(segments=4), ring(4), torch.zeros(4 * 4 * SMALLEST))
    assert [segment.forward for segment in cluster.states[0].segments] == [1, -1, 1, -1]
    assert len(Cluster(Ring(segments=4), ring(4), torch.zeros(100)).states[0].segments) == 1


def test_shards_cut_layers_and_keep_whole_ones():
    parts = shards(0, LAYOUT.numel, 2)
    assert parts == (Shard(0, 46), Shard(46, 93))
    assert [slot.shape for slot in parts[0].layout(LAYOUT).slots] == [(46,)]
    assert [slot.shape for slot in parts[1].layout(LAYOUT).slots] == [(18,), (8,), (5, 4), (1,)]


def test_error_feedback_remembers_what_it_lost():
    """One element far larger than the rest: its sign alone would drown the others for ever."""
    G = torch.tensor([100.0, 1.0, 1.0, 1.0])
    cluster = Cluster(make("ef_sign"), ring(2), torch.zeros(4), lambda rank, step, x: G, lr=1.0)
    X = cluster.run(200)
    torch.testing.assert_close(X[0] / 200, -G, rtol=0.05, atol=0.3)
