"""Push-sum: trajectories, what it conserves, and what becomes of the mass when workers are lost."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch

from testbed.errors import ScenarioError
from testbed.methods import make
from testbed.methods.dpsgd import DPSGD
from testbed.methods.mixing import rounds
from testbed.methods.sgp import SGP
from testbed.topology import mixing

from .harness import Cluster, one_peer, ring
from .tiny import PROBLEM, X0, assert_rows, distance, tiny

ARCS = mixing.push(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]), "arcs")
STAR = mixing.push(nx.star_graph(3), "star")  # every edge goes both ways, and still columns alone sum to 1


def weights(cluster: Cluster) -> np.ndarray:
    return np.array([state.weight for state in cluster.states])


def mass(cluster: Cluster, living: list[int] | None = None) -> np.ndarray:
    """Σ u_i = Σ w_i z_i."""
    among = range(len(cluster.peers)) if living is None else living
    return sum(cluster.states[i].weight * cluster.peers[i].x.double().numpy() for i in among)


def test_trajectory_on_a_directed_graph():
    sgp = tiny("sgp", ARCS)
    assert_rows(
        sgp.run(1),
        (0.418750, -0.462500, 0.950000),
        (0.278125, -0.425000, 0.800000),
        (0.150391, -0.382812, 0.898437),
        (0.203125, -0.343750, 1.031250),
    )
    np.testing.assert_allclose(weights(sgp), [0.833333, 0.833333, 1.333333, 1], atol=1e-6)
    assert_rows(
        sgp.run(3),
        (0.367573, -0.240925, 0.884267),
        (0.432143, -0.211149, 0.503058),
        (0.173325, -0.168197, 0.642095),
        (0.123227, -0.144754, 0.843774),
    )
    np.testing.assert_allclose(weights(sgp), [0.912809, 0.584105, 1.227623, 1.275463], atol=1e-6)
    sgp.run(100)
    np.testing.assert_allclose(weights(sgp), [0.923077, 0.615385, 1.230769, 1.230769], atol=2e-5)


def test_trajectory_of_overlap_sgp():
    assert_rows(
        tiny({"sgp": {"order": "A"}}, ARCS).run(4),
        (0.439065, -0.403296, 0.844561),
        (0.381485, -0.048409, 0.300199),
        (-0.012997, -0.130855, 0.776788),
        (0.307437, -0.163043, 0.911737),
    )


def test_trajectory_with_one_peer():
    X = tiny("sgp", mixing.one_peer_exponential(4)).run(2)
    even, odd = (0.147461, -0.369629, 0.901367), (0.349365, -0.264648, 0.806641)
    assert_rows(X, even, odd, even, odd)


@pytest.mark.parametrize("order", ["A", "B"])
@pytest.mark.parametrize("gossip", [ring(4), one_peer(4), mixing.random_pairs(4, 3)], ids=lambda gossip: gossip.name)
def test_on_doubly_stochastic_graphs_it_is_dpsgd(order, gossip):
    """To rounding of the products; no weight travels."""
    sgp, dpsgd = (Cluster(kind(order=order), gossip, X0, PROBLEM.direction) for kind in (SGP, DPSGD))
    sgp.run(50)
    dpsgd.run(50)
    assert (torch.stack(sgp.history) - torch.stack(dpsgd.history)).abs().max() < 1e-6
    assert weights(sgp).tolist() == [1.0] * 4
    assert sgp.world.sent == dpsgd.world.sent


@pytest.mark.parametrize("order", ["A", "B"])
@pytest.mark.parametrize("gossip", [ARCS, STAR], ids=lambda gossip: gossip.name)
def test_pure_gossip_keeps_sum_and_weight_and_finds_the_mean(order, gossip):
    x0 = torch.randn(4, 50, generator=torch.Generator().manual_seed(5)) + 3
    sgp = Cluster(SGP(order=order), gossip, x0)
    for _ in range(10):
        sgp.run(5)
        assert weights(sgp).sum() == pytest.approx(4, abs=1e-5)
        np.testing.assert_allclose(mass(sgp), x0.double().sum(0), rtol=3e-6, atol=3e-6)
    sgp.run(100)
    np.testing.assert_allclose(sgp.X.numpy(), x0.mean(0).expand(4, -1).numpy(), atol=2e-5)
    assert np.ptp(weights(sgp)) > 0.2  # though shares differ


def test_the_gradient_step_does_not_depend_on_the_weight():
    """The sum of numerators follows the sum of the workers' gradients."""
    sgp = tiny("sgp", ARCS)
    for _ in range(20):
        expected = (
            mass(sgp) - sum(PROBLEM.h[i] * (sgp.peers[i].x.double().numpy() - PROBLEM.c[i]) for i in range(4)) / 8
        )
        sgp.run(1)
        np.testing.assert_allclose(mass(sgp), expected, atol=2e-6)


def test_heterogeneous_data_leave_a_bias():
    """As of every method that mixes models alone with a constant step."""
    sgp = tiny("sgp", ARCS)
    sgp.run(400)
    assert distance(sgp) > 0.05


@pytest.mark.parametrize(("gossip", "extra"), [(ARCS, 4), (STAR, 4), (mixing.one_peer_exponential(4), 0)])
def test_bytes(gossip, extra):
    """M + 4 to each out-neighbour; the weight travels only where it is not 1."""
    sgp = tiny("sgp", gossip)
    sgp.run(3)
    assert sgp.world.sent == [3 * (12 + extra) * len(gossip.targets(0, rank)) for rank in range(4)]


@pytest.mark.parametrize("gossip", [ARCS, ring(4), mixing.one_peer_exponential(4)], ids=lambda gossip: gossip.name)
def test_who_sent_to_a_lost_worker_keeps_its_share(gossip):
    """On a graph that stays strongly connected without worker 3 (ARCS has 0→2 but no way back without 3, so there only
    the mass is looked at)."""
    x0 = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    sgp = Cluster(SGP(), gossip, x0, tolerant=True)
    sgp.run(3)
    sgp.lose(3)
    before, total = mass(sgp, [0, 1, 2]), weights(sgp)[:3].sum()
    sgp.run(40)
    np.testing.assert_allclose(mass(sgp, [0, 1, 2]), before, atol=2e-5)
    assert weights(sgp)[:3].sum() == pytest.approx(total, abs=1e-5)
    if gossip is not ARCS:
        np.testing.assert_allclose(sgp.X[:3].numpy(), np.tile(before / total, (3, 1)), atol=1e-4)


def test_a_worker_that_comes_back_brings_weight():
    x0 = torch.randn(4, 20, generator=torch.Generator().manual_seed(1))
    sgp = Cluster(SGP(), ring(4), x0, tolerant=True)
    sgp.run(2)
    sgp.lose(2)
    sgp.run(3)
    sgp.come_back(2)
    before, total = mass(sgp), weights(sgp).sum()
    assert weights(sgp)[2] == 1.0
    sgp.run(60)
    np.testing.assert_allclose(sgp.X.numpy(), np.tile(before / total, (4, 1)), atol=2e-5)


def test_who_takes_means_refuses_one_way_weights():
    for name in ("dpsgd", "naive", "deepsqueeze", "choco", "dcd", "ecd", "powergossip"):
        with pytest.raises(ScenarioError, match=f"{name} cannot run on star: .* mean would drift") as caught:
            make(name).check(STAR)
        assert "sgp" in caught.value.hint
    with pytest.raises(ScenarioError, match="mean would drift"):
        rounds(tiny("sgp", STAR).peers[0], 12)
    assert make("sgp").check(STAR) == []
