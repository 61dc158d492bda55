"""What must hold whatever the data: methods that coincide without compression, the mean that gossip keeps, ranks that
may be renamed.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.compressors import make as compressor
from testbed.flat import Layout
from testbed.methods import make
from testbed.methods.choco import Choco
from testbed.methods.dcd import DCD
from testbed.methods.deepsqueeze import DeepSqueeze
from testbed.methods.dpsgd import DPSGD
from testbed.methods.ecd import ECD
from testbed.methods.naive import Naive
from testbed.methods.powergossip import PowerGossip
from testbed.topology.gossip import Gossip

from .harness import Cluster, Toy, metropolis, ring, spread
from .quadratic import Quadratic

N, ROWS, COLUMNS, BIAS = 8, 6, 4, 5
LAYOUT = Layout.of([("weight", (ROWS, COLUMNS)), ("bias", (BIAS,)), ("other", (COLUMNS, 2, 2))])
SQUARE = Layout.of([("weight", (5, 5)), ("bias", (4,)), ("other", (4, 2, 2))])  # as many elements
D = LAYOUT.numel
IDENTITY = compressor("identity")
COMPRESSORS = ["sign", {"topk": "10%"}, {"quantize": "2bit"}, {"quantize": "8bit"}, {"randomk": "20%"}, {"lowrank": 1}]


def trajectory(method, steps=100):
    problem = Quadratic.of(N, D)
    cluster = Cluster(method, ring(N), torch.ones(D), problem.direction, lr=0.1, layout=SQUARE)
    cluster.run(steps)
    return torch.stack(cluster.history)


@pytest.mark.parametrize(
    ("method", "order"),
    [
        (Naive(IDENTITY), "A"),
        (DCD(IDENTITY), "A"),
        (ECD(IDENTITY), "A"),
        (Choco(IDENTITY, gamma=1.0, order="iclr"), "A"),
        (PowerGossip(rank=5), "A"),  # of square matrices: in others p does not span all columns
        (DeepSqueeze(IDENTITY, gamma=1.0), "B"),
        (Choco(IDENTITY, gamma=1.0, order="icml"), "B"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_without_compression_all_are_dpsgd(method, order):
    """T2: over 100 steps on a heterogeneous quadratic."""
    expected, other = trajectory(DPSGD(order=order)), trajectory(DPSGD(order="BA"["AB".index(order)]))
    assert (trajectory(method) - expected).abs().max() < 1e-5
    assert (expected - other).abs().max() > 1e-2  # the forms do differ


def test_powergossip_with_gamma_is_dpsgd_with_gamma():
    """Vectors too take γ."""
    difference = trajectory(PowerGossip(rank=5, gamma=0.7)) - trajectory(DPSGD(gamma=0.7))
    assert difference.abs().max() < 1e-5


def drift(method):
    """Of the mean over 30 steps of pure gossip, relative to the models' spread."""
    x0 = torch.randn(N, D, generator=torch.Generator().manual_seed(3)) + 5
    cluster = Cluster(method, ring(N), x0, layout=LAYOUT)
    moved = (cluster.run(30).double().mean(0) - x0.double().mean(0)).abs().max()
    return float(moved) / spread(x0) ** 0.5


@pytest.mark.parametrize("spec", COMPRESSORS, ids=str)
def test_the_mean_is_kept(spec):
    """T3: by any compressor, to rounding."""
    for gamma, name in ((0.3, "choco"), (0.05, "deepsqueeze")):
        assert drift(make({name: {"compressor": spec, "gamma": gamma}})) < 2e-6, name


@pytest.mark.parametrize("options", [{"rank": 1}, {"rank": 2, "iterations": 2}, {"warm_start": False}], ids=str)
def test_powergossip_keeps_the_mean(options):
    assert drift(make({"powergossip": options})) < 2e-6


def test_naive_does_not_keep_the_mean():
    assert drift(Naive(compressor({"quantize": "2bit"}))) > 1e-2
    assert drift(Naive(compressor("sign"))) > 1e-2


def mean_against_gradient_descent(method, steps=60):
    """T4: all Hessians equal, so x̄ of a method that keeps the mean follows centralized gradient descent."""
    problem = Quadratic.of(N, D, shared_hessian=True)
    cluster = Cluster(method, ring(N), torch.zeros(D), problem.direction, lr=0.1, layout=LAYOUT)
    cluster.run(steps)
    x, worst = np.zeros(D), 0.0
    for X in cluster.history:
        x = x - 0.1 * problem.h[0] * (x - problem.c.mean(0))
        worst = max(worst, float(np.abs(X.double().mean(0).numpy() - x).max()))
    return worst


@pytest.mark.parametrize("spec", COMPRESSORS, ids=str)
@pytest.mark.parametrize("name", ["choco", "deepsqueeze"])
def test_mean_follows_gradient_descent(name, spec):
    gamma = 0.2 if name == "choco" else 0.05
    assert mean_against_gradient_descent(make({name: {"compressor": spec, "gamma": gamma}})) < 1e-4


@pytest.mark.parametrize("order", ["iclr", "icml"])
def test_both_choco_orders_follow_gradient_descent(order):
    assert mean_against_gradient_descent(Choco(compressor("sign"), 0.4, order)) < 1e-4


@pytest.mark.parametrize("spec", ["dpsgd", {"dpsgd": {"order": "B"}}, {"powergossip": {"rank": 1}}], ids=str)
def test_mean_follows_gradient_descent_without_compressor(spec):
    assert mean_against_gradient_descent(make(spec)) < 1e-4


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"naive": {"compressor": {"quantize": "2bit"}}}, 0.1),
        ({"dcd": {"compressor": "sign"}}, 0.1),
        ({"ecd": {"compressor": {"quantize": "2bit"}}}, 0.1),
    ],
    ids=str,
)
def test_mean_leaves_gradient_descent(spec, least):
    assert mean_against_gradient_descent(make(spec)) > least


HALF = Toy(lambda x, step: x / 2)
RENAMED = [
    DPSGD(),
    DPSGD(order="B"),
    Naive(HALF),
    DCD(HALF),
    Choco(HALF, gamma=0.5),
    DeepSqueeze(HALF, gamma=0.5),
    PowerGossip(rank=2, warm_start=True),
]


@pytest.mark.parametrize("method", RENAMED, ids=lambda method: method.name)
def test_ranks_are_only_names(method):
    """T15: renaming the workers renames the trajectories (this catches a wrong sign between the ends of an edge)."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 3)]
    names = [3, 0, 4, 1, 2]  # worker i becomes names[i]
    graph, renamed = metropolis("g", 5, edges), metropolis("g", 5, [(names[i], names[j]) for i, j in edges])
    problem = Quadratic.of(5, D)
    x0 = torch.zeros(5, D) if method.name == "dcd" else torch.randn(5, D, generator=torch.Generator().manual_seed(1))

    def run(gossip: Gossip, order):
        back = {order[i]: i for i in range(5)}
        start = torch.stack([x0[back[rank]] for rank in range(5)])
        cluster = Cluster(
            method, gossip, start, lambda rank, t, x: problem.direction(back[rank], t, x), lr=0.1, layout=LAYOUT
        )
        if method.name == "powergossip":  # an edge's random numbers hang on its name: give both the same
            for rank, state in enumerate(cluster.states):
                for other, edge in state.edges.items():
                    sign = 1.0 if (rank > other) == (back[rank] > back[other]) else -1.0
                    seed = 10 * min(back[rank], back[other]) + max(back[rank], back[other])
                    edge.q.copy_(sign * torch.randn(edge.q.shape, generator=torch.Generator().manual_seed(seed)))
        X = cluster.run(10)
        return torch.stack([X[order[i]] for i in range(5)])

    difference = run(graph, list(range(5))) - run(renamed, names)
    assert difference.abs().max() < 1e-4
