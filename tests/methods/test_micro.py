"""Two workers, scalars, C(v) = v/2: steps small enough to check by hand, so equality is exact."""

from __future__ import annotations

import pytest
import torch

from testbed.flat import Layout
from testbed.methods.choco import Choco
from testbed.methods.dcd import DCD
from testbed.methods.deepsqueeze import DeepSqueeze
from testbed.methods.ecd import ECD
from testbed.methods.naive import Naive
from testbed.methods.powergossip import PowerGossip

from .harness import Cluster, Toy, ring

HALF, IDENTITY = Toy(lambda x, step: x / 2), Toy(lambda x, step: x)
APART = torch.tensor([[4.0], [0.0]])


def pulls(*etas_g: tuple[float, float]):
    """η g of each step by worker, with lr 1."""
    return lambda rank, step, x: torch.tensor([etas_g[step][rank]])


@pytest.mark.parametrize("order", ["iclr", "icml"])
def test_choco(order):
    cluster = Cluster(Choco(HALF, gamma=1.0, order=order), ring(2), APART)
    cluster.run(2)
    first, second = cluster.history
    assert first.tolist() == [[3.0], [1.0]]
    assert second.tolist() == [[2.0], [2.0]]
    assert [state.hat.item() for state in cluster.states] == [2.5, 0.5]
    assert [(state.hat + state.gap).item() for state in cluster.states] == [1.5, 1.5]  # s


def test_deepsqueeze():
    cluster = Cluster(DeepSqueeze(HALF, gamma=1.0), ring(2), APART)
    cluster.run(2)
    first, second = cluster.history
    assert first.tolist() == [[3.0], [1.0]]
    assert second.tolist() == [[2.0], [2.0]]
    assert [state.delta.item() for state in cluster.states] == [2.5, 0.5]


def test_naive_agrees_on_the_wrong_value():
    assert Cluster(Naive(HALF), ring(2), APART).run(1).tolist() == [[1.0], [1.0]]


def test_naive_with_exact_self():
    assert Cluster(Naive(HALF, exact_self=True), ring(2), APART).run(1).tolist() == [[2.0], [1.0]]


@pytest.mark.parametrize("overlap", [True, False])
def test_dcd(overlap):
    cluster = Cluster(DCD(HALF, overlap=overlap), ring(2), torch.zeros(1), pulls((-4.0, 0.0), (0.0, 0.0)), lr=1.0)
    cluster.run(2)
    first, second = cluster.history
    assert first.tolist() == [[2.0], [0.0]]
    assert second.tolist() == [[1.5], [0.5]]


def test_ecd_with_identity():
    gradient = pulls((-4.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    cluster = Cluster(ECD(IDENTITY), ring(2), torch.zeros(1), gradient, lr=1.0)
    for expected in ([[4.0], [0.0]], [[2.0], [2.0]], [[2.0], [2.0]]):
        assert cluster.run(1).tolist() == expected
        assert [[state.own.item()] for state in cluster.states] == expected  # y = x


def test_ecd_counts_from_one():
    """The first update of y has coefficients −1 and 2 (T13)."""
    cluster = Cluster(ECD(HALF), ring(2), torch.tensor([8.0]), pulls((-4.0, 0.0)), lr=1.0)
    cluster.run(1)
    # worker 0: x⁺ = 12, z = 10, C(z) = 5, y = −8 + 2·5; worker 1: x⁺ = 8, z = 8, y = −8 + 2·4
    assert [state.own.item() for state in cluster.states] == [2.0, 0.0]
    assert [state.t for state in cluster.states] == [2, 2]


def powergossip_from(q: list[float]) -> Cluster:
    start = torch.tensor([[2.0, 0, 0, 0], [0, 0, 0, 0]])
    cluster = Cluster(PowerGossip(), ring(2), start, layout=Layout.of([("M", (2, 2))]))
    for rank, state in enumerate(cluster.states):
        state.edges[1 - rank].q.copy_(torch.tensor(q))
    return cluster


def test_powergossip_along_the_difference():
    cluster = powergossip_from([1.0, 0.0])
    assert cluster.run(1).tolist() == [[1.0, 0, 0, 0], [1.0, 0, 0, 0]]
    for rank, state in enumerate(cluster.states):
        assert state.edges[1 - rank].p.tolist() == [-2.0, 0.0]  # u_hi − u_lo at both ends


def test_powergossip_across_the_difference_does_not_collapse():
    cluster = powergossip_from([0.0, 1.0])
    assert cluster.run(1).tolist() == [[2.0, 0, 0, 0], [0, 0, 0, 0]]
    for rank, state in enumerate(cluster.states):
        assert state.edges[1 - rank].p.count_nonzero() == 0
    cluster.run(30)  # p is drawn anew: the workers still meet
    torch.testing.assert_close(cluster.X, torch.tensor([[1.0, 0, 0, 0]]).expand(2, 4), atol=1e-5, rtol=0)
