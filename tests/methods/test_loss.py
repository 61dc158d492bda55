"""A worker is lost: the others' gossip is that of the graph without it, and what they agreed on stays right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from testbed.flat import Layout
from testbed.methods import available, make
from testbed.topology.gossip import Gossip

from .harness import Cluster, complete, one_peer, ring, spread

N, DEAD, D = 6, 2, 12
LAYOUT = Layout.of([("weight", (3, 3)), ("bias", (3,))])
SURVIVING = {
    "dpsgd": {"dpsgd": {}},
    "dpsgd-b": {"dpsgd": {"order": "B"}},
    "sgp": {"sgp": {"order": "A"}},
    "sgp-b": {"sgp": {}},
    "naive": {"naive": {"compressor": "identity"}},
    "naive-exact": {"naive": {"compressor": "identity", "exact_self": True}},
    "deepsqueeze": {"deepsqueeze": {"compressor": "identity", "gamma": 1.0}},
    "dcd": {"dcd": {"compressor": "identity"}},
    "dcd-serial": {"dcd": {"compressor": "identity", "overlap": False}},
    "ecd": {"ecd": {"compressor": "identity"}},
    "choco": {"choco": {"compressor": "identity", "gamma": 1.0}},
    "choco-icml": {"choco": {"compressor": "identity", "gamma": 1.0, "order": "icml"}},
    "powergossip": {"powergossip": {"rank": 3}},  # full rank: nothing is lost
    "powergossip-3": {"powergossip": {"rank": 3, "iterations": 3}},
}
FORM_B = ("dpsgd-b", "sgp-b", "deepsqueeze", "choco-icml")
A_STEP_LATER = ("dcd", "dcd-serial", "ecd")  # a step mixes what the last one received: the dead's last model, too


def without(gossip: Gossip, dead: int) -> np.ndarray:
    """W among those that live: each takes back the weight it gave to the dead."""
    W = gossip.matrices[0].copy()
    W[np.arange(len(W)), np.arange(len(W))] += W[:, dead]
    W[:, dead] = W[dead, :] = 0
    return W


def start() -> Tensor:
    return torch.randn(N, D, generator=torch.Generator().manual_seed(3))


def pull(rank: int, step: int, x: Tensor) -> Tensor:
    """Towards a point of the worker's own."""
    return x - torch.full_like(x, float(rank))


def test_which_methods_survive():
    surviving = {name for name, kind in available().items() if kind.survives}
    assert surviving == {name.split("-")[0] for name in SURVIVING}
    assert surviving.isdisjoint({"allreduce", "ring", "ddp", "ef_sign"})  # these need everybody


@pytest.mark.parametrize("name", SURVIVING)
def test_without_compression_it_is_dpsgd_on_what_is_left_of_the_graph(name):
    """From equal models, as all runs begin; four steps with everybody, then one dies."""
    cluster = Cluster(make(SURVIVING[name]), ring(N), start()[0], pull, layout=LAYOUT, tolerant=True)
    cluster.run(4)
    cluster.lose(DEAD)
    X = cluster.X.double().numpy()
    living = [rank for rank in range(N) if rank != DEAD]
    found = cluster.run(5).double().numpy()[living]
    for step in range(5):
        W = ring(N).matrices[0] if step == 0 and name in A_STEP_LATER else without(ring(N), DEAD)
        moved = X - 0.1 * (X - np.arange(N)[:, None])
        mixed = W @ (moved if name in FORM_B else X)
        if name == "powergossip-3":  # what is no matrix is mixed once
            mixed[:, :9] = (W @ W @ mixed)[:, :9]
        X = mixed if name in FORM_B else mixed - (X - moved)
    assert np.allclose(found, X[living], atol=2e-5)


@pytest.mark.parametrize("order", ["iclr", "icml"])
@pytest.mark.parametrize("compressor", ["sign", {"topk": "25%"}, {"quantize": "4bit"}])
def test_choco_still_sums_the_public_copies_of_those_that_live(compressor, order):
    method = make({"choco": {"compressor": compressor, "gamma": 0.2, "order": order}})
    cluster = Cluster(method, ring(N), start()[0], pull, layout=LAYOUT, tolerant=True)
    cluster.run(7)
    cluster.lose(DEAD)
    W = torch.from_numpy(without(ring(N), DEAD)).float()
    for _ in range(3):
        cluster.run(1)
        hats = torch.stack([state.hat for state in cluster.states])
        for rank in range(N):
            if rank != DEAD:
                assert torch.allclose(cluster.states[rank].gap, W[rank] @ hats - hats[rank], atol=1e-5)


@pytest.mark.parametrize(
    ("name", "spec"),
    {
        "dpsgd": "dpsgd",
        "deepsqueeze": {"deepsqueeze": {"compressor": "sign", "gamma": 0.05}},
        "choco": {"choco": {"compressor": "sign", "gamma": 0.2}},
        "choco-icml": {"choco": {"compressor": {"topk": "25%"}, "gamma": 0.2, "order": "icml"}},
        "powergossip": {"powergossip": {"rank": 1, "iterations": 2}},
    }.items(),
)
def test_the_mean_of_those_that_live_is_kept_and_they_agree(name, spec):
    """Without gradients, from different models (PowerGossip, CHOCO: once they have seen some of each other's)."""
    cluster = Cluster(make(spec), complete(N), start(), layout=LAYOUT, tolerant=True)
    cluster.run(10)
    cluster.lose(DEAD)
    cluster.run(1)
    living = [rank for rank in range(N) if rank != DEAD]
    mean = cluster.X[living].mean(0)
    before = spread(cluster.X[living])
    cluster.run(60)
    assert torch.allclose(cluster.X[living].mean(0), mean, atol=1e-4)
    assert spread(cluster.X[living]) <= before


@pytest.mark.parametrize("compressor", [{"quantize": "8bit"}, "sign"])
def test_replicas_of_those_that_live_stay_equal_to_their_models(compressor):
    cluster = Cluster(make({"dcd": {"compressor": compressor}}), ring(N), start()[0], pull, tolerant=True)
    cluster.run(4)
    cluster.lose(DEAD)
    cluster.run(4)
    for rank in (0, 1, 3, 4, 5):
        state = cluster.states[rank]
        assert DEAD not in state.neighbours.weights
        for other in state.neighbours.weights:
            assert torch.equal(state.replicas[other], cluster.peers[other].x)


@pytest.mark.parametrize("name", ["dcd", "ecd"])
def test_a_worker_lost_while_an_exchange_is_under_way(name):
    """With overlap the messages of a step are received in the next; those of the dead do not come."""
    cluster = Cluster(make(name), ring(N), start()[0], pull, tolerant=True)
    cluster.run(4, finish=False)
    cluster.lose(DEAD)
    X = cluster.run(30)
    living = [rank for rank in range(N) if rank != DEAD]
    assert X[living].isfinite().all()
    assert abs(float(X[living].mean()) - np.mean(living)) < 0.5


def test_rows_stay_stochastic_on_a_graph_that_changes():
    cluster = Cluster(make("dpsgd"), one_peer(N), torch.ones(D), tolerant=True)
    cluster.run(2)
    cluster.lose(DEAD)
    X = cluster.run(10)
    assert torch.allclose(X, torch.ones_like(X))  # equal models stay equal only where every row sums to 1
    for rank in range(N):
        if rank != DEAD:
            for now in cluster.states[rank].rounds:
                assert DEAD not in now.weights
                assert now.own + sum(now.weights.values()) == 1.0


def test_one_after_another_until_one_is_left():
    for spec in ("dpsgd", {"powergossip": {"iterations": 3}}, {"choco": {"gamma": 0.3}}, "dcd"):
        cluster = Cluster(make(spec), complete(3), start()[0], pull, layout=LAYOUT, tolerant=True)
        cluster.run(2)
        cluster.lose(0)
        cluster.run(2)
        cluster.lose(2)
        alone = cluster.run(200)[1]
        assert torch.allclose(alone, torch.ones(D), atol=0.05)  # only its own point pulls it


@pytest.mark.parametrize("spec", [{"choco": {"gamma": 0.3}}, "dcd", "dpsgd"])
def test_being_prepared_for_a_loss_changes_nothing(spec):
    runs = [Cluster(make(spec), ring(N), start()[0], pull, tolerant=tolerant).run(6) for tolerant in (False, True)]
    assert torch.equal(*runs)


def test_choco_keeps_copies_only_where_a_neighbour_may_be_lost():
    states = [Cluster(make("choco"), ring(N), start()[0], tolerant=tolerant).states[0] for tolerant in (False, True)]
    assert [len(state.copies) for state in states] == [0, 2]
