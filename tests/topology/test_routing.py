"""Routes and route tables: every packet arrives, by the link its ends share or by the best way, on any graph."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.topology.addresses import (
    DEFAULT,
    link_addresses,
    prefix,
    route_table,
    span,
    worker_addresses,
)
from testbed.topology.graph import TopologyError
from testbed.topology.named import named
from testbed.topology.routing import Arc, route


def arcs_of(graph: nx.Graph) -> list[Arc]:
    """Both directions of every link; an edge's `there` and `back` are milliseconds, 5 where it has none."""
    arcs = []
    for index, (a, b, data) in enumerate(graph.edges(data=True)):
        arcs.append(Arc(a, b, index, data.get("there", 5) / 1000))
        arcs.append(Arc(b, a, index, data.get("back", 5) / 1000))
    return arcs


def walk(next_link, arcs, source, target):
    """Follow the links; fails on a loop."""
    leaving = {(arc.source, arc.link): arc.target for arc in arcs}
    nodes = [source]
    while nodes[-1] != target:
        nodes.append(leaving[nodes[-1], next_link[nodes[-1]][target]])
        assert len(nodes) == len(set(nodes)), f"loop: {nodes}"
    return nodes


@st.composite
def networks(draw):
    """A connected graph of some workers and some switches with a latency for each direction."""
    workers, switches = draw(st.integers(2, 20)), draw(st.integers(0, 4))
    nodes = workers + switches
    graph = nx.empty_graph(nodes)
    for node in range(1, nodes):
        graph.add_edge(draw(st.integers(0, node - 1)), node)
    for _ in range(draw(st.integers(0, 2 * nodes))):
        a, b = draw(st.integers(0, nodes - 1)), draw(st.integers(0, nodes - 1))
        if a != b:
            graph.add_edge(a, b)
    for a, b in graph.edges:
        graph.edges[a, b].update(there=draw(st.integers(0, 5)), back=draw(st.integers(0, 5)))
    return graph, workers


@settings(max_examples=150, deadline=None)
@given(network=networks(), metric=st.sampled_from(["latency", "hops"]))
def test_tables_deliver_every_pair_along_the_intended_path(network, metric):
    graph, workers = network
    arcs = arcs_of(graph)
    next_link = route(len(graph), workers, arcs, metric).next_link
    by_table = []
    for own, row in enumerate(next_link):
        table = {}
        for number in range(workers):
            if number != own:  # longest prefix match; the own worker is reached by its connected /30
                matching = [(len(span(text)), link) for text, link in route_table(row) if number in span(text)]
                table[number] = min(matching)[1]
        by_table.append(table)
    for source in range(workers):
        for target in range(workers):
            if source == target:
                continue
            intended = walk(next_link, arcs, source, target)
            assert walk(by_table, arcs, source, target) == intended
            if graph.has_edge(source, target):
                assert intended == [source, target]


@settings(max_examples=100, deadline=None)
@given(network=networks(), metric=st.sampled_from(["latency", "hops"]))
def test_no_way_that_starts_with_another_neighbour_is_better(network, metric):
    """At each router the chosen next hop is best, given how the others forward (direct links aside)."""
    graph, workers = network
    arcs = arcs_of(graph)
    next_link = route(len(graph), workers, arcs, metric).next_link
    cost = {(arc.source, arc.target): (arc.latency if metric == "latency" else 1) for arc in arcs}

    def total(nodes):
        return sum(cost[hop] for hop in pairwise(nodes))

    for target in range(workers):
        (hook,) = graph.adj[target] if graph.degree[target] == 1 else (target,)
        root = hook if hook >= workers else target  # a worker on one switch is reached as its switch is
        for node in graph:
            if node in (target, root) or graph.has_edge(node, root):
                continue
            chosen = total(walk(next_link, arcs, node, target))
            others = [cost[node, near] + total(walk(next_link, arcs, near, target)) for near in graph.adj[node]]
            assert chosen <= min(others) + 1e-12


def test_a_slow_direct_link_still_carries_its_ends_traffic_and_is_reported():
    graph = nx.cycle_graph(4)
    graph.edges[0, 3].update(there=100, back=1)
    arcs = arcs_of(graph)
    routing = route(4, 4, arcs)
    assert walk(routing.next_link, arcs, 0, 3) == [0, 3]
    (detour,) = routing.detours
    assert (detour.source, detour.target, detour.through) == (0, 3, 1)
    assert detour.latency == pytest.approx(0.1)
    assert detour.detour == pytest.approx(0.015)
    assert route(4, 4, arcs, "hops").detours == ()


def test_hops_ignore_latency():
    graph = nx.cycle_graph(5)
    graph.edges[0, 1].update(there=100, back=100)
    arcs = arcs_of(graph)
    assert walk(route(5, 5, arcs, "latency").next_link, arcs, 0, 2) == [0, 4, 3, 2]
    assert walk(route(5, 5, arcs, "hops").next_link, arcs, 0, 2) == [0, 1, 2]


def test_fewer_hops_win_where_latency_is_equal():
    graph = nx.Graph([(0, 1), (1, 2), (2, 3), (0, 4), (4, 3)])
    graph.edges[0, 4].update(there=10, back=10)
    arcs = arcs_of(graph)
    assert walk(route(5, 5, arcs).next_link, arcs, 0, 3) == [0, 4, 3]


def test_ties_spread_evenly_over_a_ring():
    """Antipodal traffic turns the same way round everywhere: no link is busier than another."""
    arcs = arcs_of(named("ring", 8))
    next_link = route(8, 8, arcs).next_link
    load: dict[tuple[int, int], int] = {}
    for source in range(8):
        for target in range(8):
            nodes = walk(next_link, arcs, source, target) if source != target else []
            for hop in pairwise(nodes):
                load[hop] = load.get(hop, 0) + 1
    clockwise = {load[i, (i + 1) % 8] for i in range(8)}
    counter = {load[(i + 1) % 8, i] for i in range(8)}
    assert clockwise == {10}
    assert counter == {6}


def test_linked_switches_use_their_link_for_the_workers_behind_them():
    """Two regions linked by 200 ms stay at 200 ms although a third one offers 100 ms."""
    graph = nx.Graph([(0, 3), (1, 4), (2, 5), (3, 4), (4, 5), (3, 5)])
    graph.edges[3, 5].update(there=200, back=200)
    graph.edges[3, 4].update(there=50, back=50)
    graph.edges[4, 5].update(there=50, back=50)
    arcs = arcs_of(graph)
    routing = route(6, 3, arcs)
    assert walk(routing.next_link, arcs, 0, 2) == [0, 3, 5, 2]
    assert {(d.source, d.target) for d in routing.detours} == {(3, 5), (5, 3)}


def test_table_of_a_ring_is_small_and_of_a_leaf_is_one_default():
    arcs = arcs_of(named("ring", 64))
    assert max(len(route_table(row)) for row in route(64, 64, arcs).next_link) <= 7
    arcs = arcs_of(named("star", 64))
    assert route_table(route(64, 64, arcs).next_link[5]) == [(DEFAULT, 4)]


def test_blocks_never_cover_another_links_worker():
    table = route_table([-1, 0, 0, 1, 1, 1, 0])
    for text, link in table[:-1]:
        assert {[-1, 0, 0, 1, 1, 1, 0][i] for i in span(text) if i < 7} <= {link, -1}


@given(first=st.integers(0, 255), bits=st.integers(0, 6))
def test_prefix_and_span_are_inverse(first, bits):
    first -= first % (1 << bits)
    assert span(prefix(first, 1 << bits)) == range(first, first + (1 << bits))


def test_addresses():
    assert worker_addresses(0) == ("198.18.0.1", "198.18.0.2")
    assert worker_addresses(64) == ("198.18.1.1", "198.18.1.2")
    assert worker_addresses(16383) == ("198.18.255.253", "198.18.255.254")
    assert link_addresses(0) == ("198.19.0.0", "198.19.0.1")
    assert link_addresses(32767) == ("198.19.255.254", "198.19.255.255")
    with pytest.raises(TopologyError, match="16384 workers"):
        worker_addresses(16384)
    with pytest.raises(TopologyError, match="32768 links"):
        link_addresses(32768)
