"""Named graphs: how many links, how connected, and clear words where a number of workers does not fit."""

from __future__ import annotations

import networkx as nx
import pytest

from testbed.seeds import derive
from testbed.topology.graph import TopologyError
from testbed.topology.named import GRAPHS, named

# name, workers, options, links, degrees that occur
KNOWN = [
    ("ring", 8, {}, 8, {2}),
    ("ring", 2, {}, 1, {1}),
    ("ring", 3, {}, 3, {2}),
    ("chain", 8, {}, 7, {1, 2}),
    ("star", 8, {}, 7, {1, 7}),
    ("complete", 8, {}, 28, {7}),
    ("torus", 16, {}, 32, {4}),
    ("torus", 12, {}, 24, {4}),
    ("torus", 8, {"rows": 2}, 12, {3}),
    ("torus", 18, {"rows": 3, "columns": 6}, 36, {4}),
    ("hypercube", 16, {}, 32, {4}),
    ("exponential", 16, {}, 56, {7}),
    ("exponential", 6, {}, 12, {4}),
    ("tree", 7, {}, 6, {1, 2, 3}),
    ("tree", 13, {"branching": 3}, 12, {1, 3, 4}),
    ("barbell", 8, {}, 13, {3, 4}),
    ("barbell", 9, {}, 14, {2, 3, 4}),
    ("davis", 32, {}, 89, {2, 3, 4, 5, 6, 7, 8, 10, 12, 14}),
    ("random-regular", 10, {"degree": 3}, 15, {3}),
    ("random-regular", 9, {}, 18, {4}),
    ("erdos-renyi", 6, {"probability": 1.0}, 15, {5}),
]


@pytest.mark.parametrize(("name", "n", "options", "links", "degrees"), KNOWN)
def test_counts_and_connectivity(name, n, options, links, degrees):
    graph = named(name, n, options=options)
    assert sorted(graph) == list(range(n))
    assert graph.number_of_edges() == links
    assert {degree for _, degree in graph.degree} == degrees
    assert nx.is_connected(graph)
    assert nx.number_of_selfloops(graph) == 0


def test_every_name_is_tested():
    assert {row[0] for row in KNOWN} == set(GRAPHS)


@pytest.mark.parametrize("name", sorted(set(GRAPHS) - {"torus", "hypercube", "barbell", "davis"}))
def test_one_worker_is_a_network_without_links(name):
    assert named(name, 1).number_of_edges() == 0


def test_torus_is_numbered_row_by_row():
    assert sorted(named("torus", 12, options={"rows": 3, "columns": 4}).adj[0]) == [1, 3, 4, 8]


def test_hypercube_neighbours_differ_in_one_bit():
    assert all((a ^ b).bit_count() == 1 for a, b in named("hypercube", 32).edges)


@pytest.mark.parametrize("name", ["random-regular", "erdos-renyi"])
def test_random_graphs_follow_their_seed(name):
    edges = [set(named(name, 20, seed=seed).edges) for seed in (1, 1, 2)]
    assert edges[0] == edges[1]
    assert edges[0] != edges[2]
    assert set(named(name, 20, seed=7, options={"seed": 2}).edges) == edges[2]


def test_a_disconnected_draw_is_drawn_again():
    first = [nx.gnp_random_graph(12, 0.15, seed=derive(seed, "graph", 0)) for seed in range(10)]
    assert not all(nx.is_connected(graph) for graph in first)
    graphs = [named("erdos-renyi", 12, seed=seed, options={"probability": 0.15}) for seed in range(10)]
    assert all(nx.is_connected(graph) for graph in graphs)


@pytest.mark.parametrize(
    ("name", "n", "options", "words"),
    [
        ("rang", 8, {}, "did you mean 'ring'"),
        ("torus", 7, {}, "7 workers make no torus"),
        ("torus", 8, {"rows": 3}, "3×2 torus has 6 nodes, not 8"),
        ("hypercube", 12, {}, "power of two"),
        ("barbell", 3, {}, "4 workers or more"),
        ("davis", 8, {}, "32 nodes, not 8"),
        ("random-regular", 7, {"degree": 3}, "no graph gives each of 7 workers 3 links"),
        ("random-regular", 4, {"degree": 4}, "no graph gives each of 4 workers 4 links"),
        ("random-regular", 6, {"degree": 1}, "none of 100 draws"),
        ("erdos-renyi", 30, {"probability": 0.01}, "none of 100 draws"),
        ("ring", 8, {"rows": 2}, "ring has no option 'rows'"),
        ("tree", 8, {"branchin": 2}, "did you mean 'branching'"),
        ("ring", 0, {}, "needs workers"),
    ],
)
def test_what_cannot_be_says_why(name, n, options, words):
    with pytest.raises(TopologyError, match=words):
        named(name, n, options=options)
