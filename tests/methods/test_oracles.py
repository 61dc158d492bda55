"""Every method against the paper's equations in numpy float64, with compressors that are linear, so that rounding stays
rounding. Graphs: regular, irregular, and (where the maths allow it) directed and changing every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

import numpy as np
import pytest
import torch

from testbed.flat import Layout
from testbed.methods.allreduce import AllReduce
from testbed.methods.base import Method
from testbed.methods.choco import Choco
from testbed.methods.dcd import DCD
from testbed.methods.deepsqueeze import DeepSqueeze
from testbed.methods.dpsgd import DPSGD
from testbed.methods.ecd import ECD
from testbed.methods.ef_sign import EFSign
from testbed.methods.naive import Naive
from testbed.methods.powergossip import PowerGossip
from testbed.methods.ring import Ring
from testbed.topology.gossip import Gossip

from . import oracles
from .harness import Cluster, Toy, complete, metropolis, one_peer, ring
from .quadratic import Quadratic

D, STEPS, ETA = 37, 60, 0.1
KITE = metropolis("kite", 6, [(0, 1), (0, 2), (1, 2), (2, 3), (3, 4), (4, 5), (1, 3)])
GRAPHS = [ring(5), KITE, complete(4)]


def mask(step: int, d: int):
    """A random half of the coordinates, another one in each step."""
    return np.random.default_rng(step).random(d) < 0.5


HALF = (Toy(lambda x, step: x / 2), lambda V, t: V / 2)
MASK = (
    Toy(lambda x, step: x * torch.from_numpy(mask(step, len(x))).float()),
    lambda V, t: V * mask(t, V.shape[1]),
)
LINEAR = pytest.mark.parametrize("C", [HALF, MASK], ids=["half", "mask"])
STATIC = pytest.mark.parametrize("gossip", GRAPHS, ids=lambda gossip: gossip.name)


def start(n: int, *, equal: bool) -> torch.Tensor:
    X = torch.randn(n, D, generator=torch.Generator().manual_seed(7))
    return X[:1].expand(n, -1) if equal else X


def compare(
    method: Method,
    gossip: Gossip,
    oracle: Iterator[np.ndarray],
    x0: torch.Tensor,
    problem: Quadratic,
    tolerance: float = 1e-6,
) -> None:
    cluster = Cluster(method, gossip, x0, problem.direction, lr=ETA)
    cluster.run(STEPS)
    for step, (X, expected) in enumerate(zip(cluster.history, islice(oracle, STEPS), strict=True)):
        error = np.abs(X.double().numpy() - expected).max() / np.abs(expected).max()
        assert error <= tolerance, f"step {step}: relative error {error:.2g}"


@STATIC
@pytest.mark.parametrize("gamma", [1.0, 0.6])
@pytest.mark.parametrize(("order", "oracle"), [("A", oracles.dpsgd_a), ("B", oracles.dpsgd_b)])
def test_dpsgd(gossip, gamma, order, oracle):
    problem, x0 = Quadratic.of(gossip.size, D), start(gossip.size, equal=False)
    expected = oracle(x0.double().numpy(), gossip.matrix(0), ETA, problem.directions, gamma)
    compare(DPSGD(order=order, gamma=gamma), gossip, expected, x0, problem)


@pytest.mark.parametrize("order", ["A", "B"])
def test_dpsgd_on_a_changing_graph(order):
    gossip = one_peer(6)
    problem, X = Quadratic.of(6, D), start(6, equal=False).double().numpy()

    def oracle(X):
        for t in range(STEPS):
            g, W = ETA * problem.directions(X, t), gossip.matrix(t)
            X = W @ X - g if order == "A" else W @ (X - g)
            yield X

    compare(DPSGD(order=order), gossip, oracle(X), start(6, equal=False), problem)


@STATIC
@LINEAR
@pytest.mark.parametrize("exact_self", [False, True])
def test_naive(gossip, C, exact_self):
    problem, x0 = Quadratic.of(gossip.size, D), start(gossip.size, equal=False)
    expected = oracles.naive(x0.double().numpy(), gossip.matrix(0), ETA, problem.directions, C[1], exact_self)
    compare(Naive(C[0], exact_self=exact_self), gossip, expected, x0, problem)


@STATIC
@LINEAR
@pytest.mark.parametrize(("method", "oracle"), [(DCD, oracles.dcd), (ECD, oracles.ecd)])
def test_dcd_and_ecd(gossip, C, method, oracle):
    problem, x0 = Quadratic.of(gossip.size, D), start(gossip.size, equal=True)
    expected = oracle(x0.double().numpy(), gossip.matrix(0), ETA, problem.directions, C[1])
    # ECD with a biased C is unstable by itself: rounding errors grow like everything else in it.
    compare(method(C[0]), gossip, expected, x0, problem, 1e-6 if method is DCD else 1e-5)


@STATIC
@LINEAR
@pytest.mark.parametrize(
    ("make", "oracle"),
    [
        (DeepSqueeze, oracles.deepsqueeze),
        (lambda C, gamma: Choco(C, gamma, order="iclr"), oracles.choco_iclr),
        (lambda C, gamma: Choco(C, gamma, order="icml"), oracles.choco_icml),
    ],
    ids=["deepsqueeze", "choco-iclr", "choco-icml"],
)
def test_methods_with_gamma(gossip, C, make, oracle):
    problem, x0 = Quadratic.of(gossip.size, D), start(gossip.size, equal=False)
    expected = oracle(x0.double().numpy(), gossip.matrix(0), ETA, problem.directions, C[1], 0.4)
    compare(make(C[0], 0.4), gossip, expected, x0, problem)


def test_deepsqueeze_on_a_changing_graph():
    gossip = one_peer(6)
    problem, x0 = Quadratic.of(6, D), start(6, equal=False)

    def oracle(X):
        delta = np.zeros_like(X)
        for t in range(STEPS):
            half = X - ETA * problem.directions(X, t)
            Q = HALF[1](half + delta, t)
            delta = half + delta - Q
            X = half + 0.4 * (gossip.matrix(t) - np.eye(6)) @ Q
            yield X

    compare(DeepSqueeze(HALF[0], gamma=0.4), gossip, oracle(x0.double().numpy()), x0, problem)


@STATIC
@pytest.mark.parametrize("gamma", [1.0, 0.7])
def test_powergossip(gossip, gamma):
    """Rank 1 on one matrix; both sides start from the q that the method drew."""
    rows, columns, n = 6, 5, gossip.size
    problem = Quadratic.of(n, rows * columns)
    x0 = torch.randn(n, rows * columns, generator=torch.Generator().manual_seed(7))
    layout = Layout.of([("M", (rows, columns))])
    cluster = Cluster(PowerGossip(gamma=gamma), gossip, x0, problem.direction, lr=ETA, layout=layout)
    q = {
        (lo, hi): cluster.states[lo].edges[hi].q.double().numpy()
        for lo in range(n)
        for hi in cluster.states[lo].edges
        if lo < hi
    }

    def directions(X, t):
        return list(problem.directions(np.stack([M.ravel() for M in X]), t).reshape(n, rows, columns))

    M0 = [M.double().numpy().reshape(rows, columns) for M in x0]
    expected = oracles.powergossip(M0, gossip.matrix(0), ETA, directions, q, gamma)
    cluster.run(12)  # the direction of a small difference is ill-conditioned: in the long run rounding errors grow
    for X, Y in zip(cluster.history, islice(expected, 12), strict=True):
        Y = np.stack([M.ravel() for M in Y])
        assert np.abs(X.double().numpy() - Y).max() / np.abs(Y).max() <= 1e-5


@pytest.mark.parametrize("method", [AllReduce(), Ring(), Ring(segments=1)], ids=["allreduce", "ring", "ring-1"])
def test_allreduce(method):
    problem, x0 = Quadratic.of(5, D), start(5, equal=True)
    compare(method, ring(5), oracles.allreduce(x0.double().numpy(), ETA, problem.directions), x0, problem)


@LINEAR
def test_two_round_allreduce(C):
    """Shard k: its owner's part exact, the others' through C, their mean through C again."""
    n = 5
    problem, x0 = Quadratic.of(n, D), start(n, equal=True)
    borders = [D * k // n for k in range(n + 1)]

    def oracle(X):
        for t in range(STEPS):
            G = problem.directions(X, t)
            mean = np.empty(D)
            for k, (a, b) in enumerate(pairwise(borders)):
                parts = C[1](G[:, a:b], t)
                parts[k] = G[k, a:b]
                mean[a:b] = C[1](parts.mean(0, keepdims=True), t)[0]
            X = X - ETA * mean
            yield X

    compare(AllReduce(C[0]), ring(n), oracle(x0.double().numpy()), x0, problem)


@LINEAR
def test_error_feedback(C):
    problem, x0 = Quadratic.of(5, D), start(5, equal=True)
    compare(EFSign(C[0]), ring(5), oracles.ef(x0.double().numpy(), ETA, problem.directions, C[1]), x0, problem)


def test_momentum_is_local():
    """The direction holds the momentum; what is mixed is the model alone."""
    problem, x0, W = Quadratic.of(5, D), start(5, equal=False), ring(5).matrix(0)
    cluster = Cluster(DPSGD(), ring(5), x0, problem.direction, lr=0.02, momentum=0.9)
    X, V = x0.double().numpy(), np.zeros((5, D))
    cluster.run(STEPS)
    for Y in cluster.history:
        V = 0.9 * V + problem.directions(X, 0)
        X = W @ X - 0.02 * V
        assert np.abs(Y.double().numpy() - X).max() <= 1e-6 * np.abs(X).max()
