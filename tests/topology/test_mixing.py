"""Mixing weights: the published spectral constants, double stochasticity, and refusal of what cannot average."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.errors import ScenarioError
from testbed.topology import mixing
from testbed.topology.graph import TopologyError
from testbed.topology.named import named


def test_the_spectrum_is_computed_once(monkeypatch):
    """Of a thousand workers it takes most of a plan's time."""
    asked, real = [], np.linalg.eigvalsh
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda W: asked.append(W) or real(W))
    gossip = mixing.metropolis(named("ring", 16), "ring")
    assert (gossip.spectral_gap > 0, gossip.gamma_opt > 1, gossip.beta > 1) == (True, True, True)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("n", "lambda2", "gap", "gamma"),
    [
        (4, 0.3333, 0.6667, 1.0000),
        (8, 0.8047, 0.1953, 1.3084),
        (16, 0.9493, 0.0507, 1.4450),
        (32, 0.9872, 0.0128, 1.4857),
        (64, 0.9968, 0.0032, 1.4964),
    ],
)
def test_spectrum_of_rings(n, lambda2, gap, gamma):
    gossip = mixing.metropolis(named("ring", n), "ring")
    assert gossip.eigenvalues[1] == pytest.approx(lambda2, abs=5e-5)
    assert gossip.eigenvalues[-1] == pytest.approx(-1 / 3, abs=5e-5)
    assert gossip.spectral_gap == pytest.approx(gap, abs=5e-5)
    assert gossip.beta == pytest.approx(1.3333, abs=5e-5)
    assert gossip.gamma_opt == pytest.approx(gamma, abs=5e-5)


@pytest.mark.parametrize(("n", "gap"), [(16, 0.4), (36, 0.2), (64, 0.1172)])
def test_spectrum_of_tori(n, gap):
    gossip = mixing.metropolis(named("torus", n), "torus")
    assert gossip.eigenvalues[1] == pytest.approx(1 - gap, abs=5e-5)
    assert gossip.eigenvalues[-1] == pytest.approx(-0.6, abs=5e-5)
    assert gossip.spectral_gap == pytest.approx(gap, abs=5e-5)
    assert gossip.beta == pytest.approx(1.6, abs=5e-5)


def test_spectrum_of_davis():
    gossip = mixing.metropolis(named("davis", 32), "davis")
    assert gossip.eigenvalues[1] == pytest.approx(0.9179, abs=5e-5)
    assert gossip.eigenvalues[-1] == pytest.approx(-0.4343, abs=5e-5)
    assert gossip.spectral_gap == pytest.approx(0.0821, abs=5e-5)
    assert gossip.gamma_opt == pytest.approx(1.319, abs=5e-4)


def test_gamma_opt_is_the_fastest():
    gossip = mixing.metropolis(named("ring", 8), "ring")

    def radius(gamma: float) -> float:
        return float(np.abs(1 + gamma * (gossip.eigenvalues[1:] - 1)).max())

    assert radius(gossip.gamma_opt) < min(radius(gossip.gamma_opt * 0.99), radius(gossip.gamma_opt * 1.01))


def test_metropolis_is_the_formula():
    gossip = mixing.metropolis(nx.path_graph(3), "chain")
    np.testing.assert_allclose(gossip.matrices[0], [[2 / 3, 1 / 3, 0], [1 / 3, 1 / 3, 1 / 3], [0, 1 / 3, 2 / 3]])


def test_uniform_equals_metropolis_on_regular_graphs():
    for name in ("ring", "torus", "complete", "hypercube"):
        graph = named(name, 16)
        uniform, metropolis = mixing.uniform(graph, name), mixing.metropolis(graph, name)
        np.testing.assert_allclose(uniform.matrices[0], metropolis.matrices[0], atol=1e-12)


def test_uniform_needs_equal_degrees():
    with pytest.raises(TopologyError, match="w0 has 1 and w1 has 2"):
        mixing.uniform(named("chain", 4), "chain")


@settings(max_examples=50, deadline=None)
@given(n=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_metropolis_is_doubly_stochastic_on_any_graph(n, seed):
    gossip = mixing.metropolis(named("erdos-renyi", n, seed), "random")
    W = gossip.matrices[0]
    assert (W >= 0).all()
    np.testing.assert_allclose(W.sum(axis=0), 1)
    np.testing.assert_allclose(W, W.T)
    assert gossip.spectral_gap > 0


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12, 16])
def test_one_peer_exponential(n):
    gossip = mixing.one_peer_exponential(n)
    assert len(gossip.matrices) == max(1, (n - 1).bit_length())
    product = np.eye(n)
    for step, W in enumerate(gossip.matrices):
        np.testing.assert_allclose(W.sum(axis=0), 1)
        np.testing.assert_allclose(W.sum(axis=1), 1)
        for rank in range(n):
            if n > 1:
                assert gossip.targets(step, rank) == ((rank + 2**step) % n,)
                assert gossip.sources(step, rank) == ((rank - 2**step) % n,)
                assert gossip.weight(step, rank, rank) == 0.5
        product = W @ product
    if n & (n - 1) == 0:
        np.testing.assert_allclose(product, np.full((n, n), 1 / n), atol=1e-15)
        assert gossip.spectral_gap == 1.0
    else:
        assert 0 < gossip.spectral_gap < 1


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8])
def test_random_pairs_are_matchings_drawn_from_seed_and_round(n):
    gossip = mixing.random_pairs(n, seed=3)
    partners = []
    for step in range(200):
        W = gossip.matrix(step)
        np.testing.assert_array_equal(W, mixing.random_pairs(n, seed=3).matrix(step))  # a function of the step
        np.testing.assert_array_equal(W, W.T)
        np.testing.assert_array_equal(W @ W, W)  # pairs that average, so averaging again changes nothing
        degrees = [len(gossip.sources(step, rank)) for rank in range(n)]
        assert sum(degrees) == n - n % 2
        assert gossip.sources(step, 0) == gossip.targets(step, 0)
        partners.append(gossip.sources(step, 0))
    assert set(partners) == {(j,) for j in range(1, n)} | ({()} if n % 2 else set())
    assert gossip.neighbours(0) == set(range(1, n))
    assert not gossip.static
    assert gossip.symmetric
    if n > 3:
        assert any((mixing.random_pairs(n, 4).matrix(t) != gossip.matrix(t)).any() for t in range(8))


@pytest.mark.parametrize("n", [2, 3, 4, 7, 16])
def test_the_spectral_gap_of_random_pairs_is_what_rounds_do_on_average(n):
    """E‖Wx‖² = ρ‖x‖² for x without mean: measured over many rounds on one vector."""
    gossip = mixing.random_pairs(n, seed=1)
    x = np.random.default_rng(0).standard_normal(n)
    x -= x.mean()
    left = np.mean([np.square(gossip.matrix(t) @ x).sum() for t in range(4000)]) / np.square(x).sum()
    assert (1 - gossip.spectral_gap) ** 2 == pytest.approx(left, abs=0.02)


def test_push_shares_out_equally():
    gossip = mixing.push(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]), "arcs")
    P = gossip.matrices[0]
    third = 1 / 3
    np.testing.assert_allclose(
        P, [[third, 0, 0, 0.5], [third, 0.5, 0, 0], [third, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]
    )  # row: receiver
    assert gossip.kind == "column"
    assert gossip.sources(0, 2) == (0, 1)
    assert gossip.targets(0, 0) == (1, 2)
    assert not gossip.symmetric


def test_the_spectral_gap_of_column_weights_is_how_fast_shares_settle():
    gossip = mixing.push(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]), "arcs")
    w, history = np.ones(4), []
    limit = np.array([12, 8, 16, 16]) / 13
    for _ in range(60):
        w = gossip.matrices[0] @ w
        history.append(np.abs(w - limit).max())
    assert 1 - gossip.spectral_gap == pytest.approx((history[59] / history[29]) ** (1 / 30), abs=0.02)


@pytest.mark.parametrize("name", ["ring", "complete", "hypercube"])
def test_push_on_regular_graphs_is_doubly_stochastic(name):
    push, metropolis = mixing.push(named(name, 8), name), mixing.metropolis(named(name, 8), name)
    assert push.kind == "doubly"
    np.testing.assert_allclose(push.matrices[0], metropolis.matrices[0], atol=1e-12)


def test_push_on_a_star_is_not():
    gossip = mixing.push(named("star", 4), "star")
    assert gossip.kind == "column"
    np.testing.assert_allclose(gossip.matrices[0].sum(axis=0), 1)
    assert gossip.matrices[0][0].sum() == pytest.approx(0.25 + 3 * 0.5)


def test_arcs_without_a_way_back():
    with pytest.raises(TopologyError, match="nothing that w2 sends ever reaches w0"):
        mixing.push(nx.DiGraph([(0, 1), (1, 0), (1, 2)]), "arcs")


def test_a_given_matrix_may_be_column_stochastic():
    gossip = mixing.given([[0.5, 0.25], [0.5, 0.75]], 2)
    assert gossip.kind == "column"
    assert mixing.given([[0.5, 0.5], [0.5, 0.5]], 2).kind == "doubly"


def test_no_spectrum_where_there_is_none():
    with pytest.raises(ScenarioError, match="one-peer-exponential"):
        _ = mixing.one_peer_exponential(8).gamma_opt


def test_a_given_matrix_is_taken_as_it_is():
    rows = [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]]
    gossip = mixing.given(rows, 3)
    np.testing.assert_array_equal(gossip.matrices[0], rows)
    assert gossip.sources(0, 1) == (0, 2)


def test_spectral_gap_of_a_directed_ring():
    """(I + P)/2 has the eigenvalues (1 + e^(2πik/n))/2, so |λ2| = cos(π/n)."""
    n = 7
    W = (np.eye(n) + np.roll(np.eye(n), -1, axis=1)) / 2
    assert mixing.given(W.tolist(), n).spectral_gap == pytest.approx(1 - np.cos(np.pi / n))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1.0]], "1×1, but there are 2 workers"),
        ([[0.5, 0.5], [0.5]], "2×1 to 2"),
        ([[1.5, -0.5], [-0.5, 1.5]], "row 0, column 1 is -0.5"),
        ([[0.5, 0.5], [0.4, 0.5]], "row 1 of the weights sums to 0.9"),
        ([[0.9, 0.1], [0.5, 0.5]], "column 0 of the weights sums to 1.4"),
        ([[1.0, 0.0], [0.0, 1.0]], "nothing links w0 to the rest"),
        ([[0.0, 1.0], [1.0, 0.0]], "spectral gap is 0"),
        ([[float("nan"), 1.0], [1.0, 0.0]], "row 0, column 0 is nan"),
    ],
)
def test_matrices_that_cannot_be(rows, words):
    with pytest.raises(TopologyError, match=words):
        mixing.given(rows, 2)


def test_rounding_of_a_given_matrix_is_forgiven():
    third = 0.3333333
    assert mixing.given([[third] * 3] * 3, 3).size == 3
