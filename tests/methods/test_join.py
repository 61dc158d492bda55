"""A worker that was lost comes back: gossip is that of the whole graph again, and both ends of every edge agree."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.errors import TrainingError
from testbed.methods import available, make
from testbed.methods.base import Method
from testbed.methods.mixing import Round

from .harness import Cluster, metropolis, one_peer, ring, spread
from .test_loss import DEAD, FORM_B, LAYOUT, SURVIVING, D, N, pull, start

COMPRESSED = {
    "dpsgd": {"dpsgd": {}},
    "sgp": {"sgp": {}},
    "naive": {"naive": {"compressor": {"quantize": "8bit"}}},
    "deepsqueeze": {"deepsqueeze": {"compressor": "sign", "gamma": 0.05}},
    "dcd": {"dcd": {"compressor": {"quantize": "4bit"}}},
    "dcd-serial": {"dcd": {"compressor": "sign", "overlap": False}},
    "ecd": {"ecd": {"compressor": {"quantize": "8bit"}}},
    "choco": {"choco": {"compressor": "sign", "gamma": 0.2}},
    "choco-icml": {"choco": {"compressor": {"topk": "25%"}, "gamma": 0.2, "order": "icml"}},
    "powergossip": {"powergossip": {"rank": 1, "iterations": 3}},
    "powergossip-cold": {"powergossip": {"rank": 1, "warm_start": False}},
}


def rounds_of(state) -> tuple[Round, ...]:
    return tuple(state.rounds) if hasattr(state, "rounds") else (state.neighbours,)


def assert_both_ends_agree(cluster: Cluster) -> None:
    """What every worker knows of another is what that one knows of itself, to the bit."""
    for rank, state in enumerate(cluster.states):
        for other in cluster.gossip.neighbours(rank):
            theirs = cluster.states[other]
            for replicas in ("replicas", "estimates", "copies"):
                if hasattr(state, replicas):
                    public = cluster.method.public(cluster.peers[other], theirs)
                    assert torch.equal(getattr(state, replicas)[other], public)
            if hasattr(state, "edges"):
                assert torch.equal(state.edges[other].p, theirs.edges[rank].p)
                assert torch.equal(state.edges[other].q, theirs.edges[rank].q)
            assert getattr(state, "t", 0) == getattr(theirs, "t", 0)


def test_all_that_survive_a_loss_take_workers_back():
    assert {name for name, kind in available().items() if kind.survives} == {name.split("-")[0] for name in COMPRESSED}
    assert all(make(spec).rejoins for spec in COMPRESSED.values())
    assert not make("allreduce").rejoins


def test_a_method_of_ones_own_that_survives_need_not_take_workers_back():
    class Survivor(type(make("dpsgd"))):
        join = Method.join

    assert Survivor().survives
    assert not Survivor().rejoins
    with pytest.raises(TrainingError, match="cannot take a worker back"):
        Survivor().join(None, None, [1], {})


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("name", SURVIVING)
def test_without_compression_it_is_dpsgd_on_the_whole_graph_again(name, noticed):
    """From when it is back: a copy of its neighbour's model, W as planned, nothing left of its absence. Also where it
    was back before anybody had noticed."""
    cluster = Cluster(make(SURVIVING[name]), ring(N), start()[0], pull, layout=LAYOUT, tolerant=True)
    cluster.run(4)
    cluster.lose(DEAD)
    cluster.run(3 if noticed else 0)
    donor = cluster.come_back(DEAD)
    X = cluster.X.double().numpy()
    assert np.array_equal(X[DEAD], X[donor])
    found = cluster.run(5).double().numpy()
    for _ in range(5):
        moved = X - 0.1 * (X - np.arange(N)[:, None])
        mixed = ring(N).matrices[0] @ (moved if name in FORM_B else X)
        if name == "powergossip-3":  # what is no matrix is mixed once
            W = ring(N).matrices[0]
            mixed[:, :9] = (W @ W @ mixed)[:, :9]
        X = mixed if name in FORM_B else mixed - (X - moved)
    assert np.allclose(found, X, atol=3e-5)


@pytest.mark.parametrize("name", COMPRESSED)
def test_both_ends_of_every_edge_agree_and_the_weights_are_as_planned(name):
    cluster = Cluster(make(COMPRESSED[name]), ring(N), start()[0], pull, layout=LAYOUT, tolerant=True)
    cluster.run(5)
    cluster.lose(DEAD)
    cluster.run(4)
    cluster.come_back(DEAD)
    assert_both_ends_agree(cluster)
    cluster.run(7)
    assert_both_ends_agree(cluster)
    assert len({getattr(state, "tau", 0) for state in cluster.states}) == 1
    rows = [rounds_of(state)[0] for state in cluster.states]
    W = np.array([[row.own if i == j else row.weights.get(j, 0.0) for j in range(N)] for i, row in enumerate(rows)])
    gamma = getattr(cluster.method, "gamma", 1.0) if name == "deepsqueeze" else 1.0
    assert np.allclose(W, np.eye(N) + gamma * (ring(N).matrices[0] - np.eye(N)), atol=1e-6)
    assert np.allclose(W.sum(0), 1, atol=1e-6)
    assert [list(row.weights) for row in rows] == [sorted(row.weights) for row in rows]  # sums keep their order


@pytest.mark.parametrize("name", ["dpsgd", "deepsqueeze", "choco", "choco-icml", "powergossip"])
def test_the_mean_is_kept_from_then_on_and_they_agree(name):
    cluster = Cluster(make(COMPRESSED[name]), ring(N), start(), layout=LAYOUT, tolerant=True)
    cluster.run(10)
    cluster.lose(DEAD)
    cluster.run(5)
    cluster.come_back(DEAD)
    mean, before = cluster.X.mean(0), spread(cluster.X)
    cluster.run(80)
    assert torch.allclose(cluster.X.mean(0), mean, atol=1e-4)
    assert spread(cluster.X) < before


@pytest.mark.parametrize("order", ["iclr", "icml"])
def test_choco_sums_the_copies_of_all_again(order):
    method = make({"choco": {"compressor": {"topk": "25%"}, "gamma": 0.2, "order": order}})
    cluster = Cluster(method, ring(N), start()[0], pull, layout=LAYOUT, tolerant=True)
    cluster.run(6)
    cluster.lose(DEAD)
    cluster.run(3)
    cluster.come_back(DEAD)
    W = torch.from_numpy(ring(N).matrices[0]).float()
    for _ in range(4):
        hats = torch.stack([state.hat for state in cluster.states])
        for rank, state in enumerate(cluster.states):
            assert torch.allclose(state.gap, W[rank] @ hats - hats[rank], atol=1e-5)
        cluster.run(1)


@pytest.mark.parametrize("name", COMPRESSED)
def test_again_and_again_beside_others_that_are_dead(name):
    """Two neighbours die at once; the one that is back first does without the other, which then finds it there."""
    cluster = Cluster(make(COMPRESSED[name]), ring(N), start()[0], pull, layout=LAYOUT, tolerant=True)
    for _ in range(2):
        cluster.run(3)
        cluster.lose(DEAD)
        cluster.lose(DEAD + 1)
        cluster.run(3)
        cluster.come_back(DEAD)
        assert DEAD + 1 not in rounds_of(cluster.states[DEAD])[0].weights
        cluster.run(2)
        cluster.come_back(DEAD + 1)
        assert_both_ends_agree(cluster)
    X = cluster.run(5)
    assert X.isfinite().all()
    assert_both_ends_agree(cluster)


@pytest.mark.parametrize("name", COMPRESSED)
def test_back_to_one_that_was_alone(name):
    pair = metropolis("chain", 3, [(0, 1), (1, 2)])
    cluster = Cluster(make(COMPRESSED[name]), pair, start()[0], pull, layout=LAYOUT, tolerant=True)
    cluster.run(3)
    cluster.lose(1)
    cluster.run(4)  # w0 and w2 are each on their own
    cluster.come_back(1)
    cluster.run(5)
    assert_both_ends_agree(cluster)
    far = spread(torch.arange(3.0)[:, None].expand(3, D))  # where each would be for itself
    assert spread(cluster.run(200)) < far


def test_on_a_graph_that_changes_rows_are_stochastic_again():
    cluster = Cluster(make("dpsgd"), one_peer(N), torch.ones(D), tolerant=True)
    cluster.run(2)
    cluster.lose(DEAD)
    cluster.run(4)
    cluster.come_back(DEAD)
    assert torch.allclose(cluster.run(9), torch.ones(N, D))
    for rank, state in enumerate(cluster.states):
        for step, now in enumerate(state.rounds):
            assert tuple(now.weights) == one_peer(N).sources(step, rank)
            assert now.own + sum(now.weights.values()) == 1.0
