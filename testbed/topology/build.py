"""From the scenario's words to a `Topology` and a `Gossip`, with file:line in every error. The plan calls it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import networkx as nx

from testbed.topology import mixing
from testbed.topology.files import read_graph
from testbed.topology.gossip import Gossip
from testbed.topology.graph import (
    Edge,
    Topology,
    TopologyError,
    check_connected,
    listing,
    located,
    named_edges,
    worker_names,
)
from testbed.topology.mininet_topo import read_mininet
from testbed.topology.named import named
from testbed.topology.regions import region_topology

if TYPE_CHECKING:
    from testbed.scenario.graphs import Topology as Graph
    from testbed.scenario.model import Scenario

HUB = "s0"  # the switch in the centre of a star
CHANGING = ("one-peer-exponential", "random-pairs")  # gossip graphs with another matrix in each round


def network_topology(scenario: Scenario) -> Topology:
    """Nodes and links of the scenario's network, in one piece, with as many workers as asked for."""
    network = scenario.network
    if network.regions and network.topology is None:
        with located(scenario.where("network.regions")):
            count = scenario.workers.count
            n = count if count is not None else sum(len(members) for members in network.regions.values())
            return region_topology(network, n).check()
    with located(scenario.where("network.topology")):
        topology = _from(network.graph, scenario)
    with located(scenario.where("network.switches")):
        topology = _with_switches(topology, network.switches, network.graph.builtin)
    with located(scenario.where("network.topology")):
        count = scenario.workers.count
        if count is not None and count != len(topology.workers):
            raise TopologyError(
                f"{topology.name} has {len(topology.workers)} workers, but the scenario asks for {count}",
                hint=f"set workers: {len(topology.workers)}, or name the nodes that only forward in network.switches",
            )
        return topology.check()


def gossip_graph(scenario: Scenario, topology: Topology) -> tuple[Gossip, list[str]]:
    """The scenario's gossip graph and notes about it. By default the network's own neighbours average."""
    weights, chosen, n = scenario.gossip.weights, scenario.gossip.graph, len(topology.workers)
    notes: list[str] = []
    if not isinstance(weights, str):
        with located(scenario.where("gossip.weights")):
            if chosen is not None:
                raise TopologyError("a matrix of weights is the gossip graph; leave gossip.graph out")
            return mixing.given(weights, n), notes
    with located(scenario.where("gossip.graph" if chosen else "gossip")):
        if chosen is not None and chosen.kind in CHANGING:
            if weights != "metropolis":
                raise TopologyError(f"{chosen.kind} brings its own weights, ½ and ½")
            return _changing(chosen, n, scenario.seed), notes
        if chosen is not None and chosen.kind == "arcs":
            if weights == "uniform":
                raise TopologyError("arcs go one way and are shared out along: leave weights out, or say push")
            return mixing.push(_directed(chosen.options, topology), "arcs"), notes
        if chosen is not None:
            graph, name = _gossip_of(chosen, scenario, topology), chosen.kind
        elif nx.is_connected(graph := topology.worker_graph()):
            name = topology.name
        else:
            graph, name = named("ring", n), "ring"
            notes.append(
                f"{topology.name}: switches, not links of their own, connect the workers, so they gossip in a ring; "
                "set gossip to choose another graph"
            )
        check_connected(nx.relabel_nodes(graph, dict(enumerate(topology.workers))), f"gossip graph {name}")
        make = {"metropolis": mixing.metropolis, "uniform": mixing.uniform, "push": mixing.push}[weights]
        return make(graph, name), notes


def _from(graph: Graph, scenario: Scenario) -> Topology:
    if graph.kind == "file":
        return read_graph(scenario.resolve(graph.options))
    if graph.kind == "mininet":
        return read_mininet(graph.options, scenario.resolve("."))
    if graph.kind == "links":
        return _listed(graph.options, scenario)
    n = scenario.worker_count
    if n is None:
        raise TopologyError(f"how many workers? {graph.kind} can have any number", hint="for example workers: 8")
    if graph.kind == "star":
        workers = worker_names(n)
        return Topology("star", workers, (HUB,), tuple(Edge(name, HUB) for name in workers))
    edges = named_edges(named(graph.kind, n, scenario.seed, graph.settings))
    return Topology(graph.kind, worker_names(n), (), edges)


def _listed(pairs: tuple[tuple[str, str], ...], scenario: Scenario) -> Topology:
    """Links one by one: nodes called w0, w1, … are workers, all others (and `network.switches`) are switches."""
    from testbed.scenario.model import WORKER

    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    found = {name for name in names if WORKER.fullmatch(name) and name not in scenario.network.switches}
    workers = tuple(sorted(found, key=lambda name: int(name[1:])))
    expected = worker_names(max(len(workers), scenario.workers.count or 1))
    if missing := [name for name in expected if name not in found]:
        raise TopologyError(f"no link leads to {listing(missing)}", hint="workers are numbered without gaps from w0 on")
    switches = tuple(name for name in names if name not in found)
    return Topology("links", workers, switches, tuple(Edge(a, b) for a, b in pairs))


def _with_switches(topology: Topology, names: tuple[str, ...], builtin: bool) -> Topology:
    """The topology with the named nodes as switches instead of workers."""
    forwarding = {topology.node(name) for name in names}
    if forwarding & set(topology.workers) and builtin:
        raise TopologyError(f"all nodes of a {topology.name} are workers", hint="list the links to place switches")
    workers = tuple(name for name in topology.workers if name not in forwarding)
    moved = tuple(name for name in topology.workers if name in forwarding)
    if not workers:
        raise TopologyError("every node is a switch, so there would be no workers")
    return replace(topology, workers=workers, switches=topology.switches + moved)


def _gossip_of(graph: Graph, scenario: Scenario, topology: Topology) -> nx.Graph:
    """A graph of ranks: built-in ones by number, others by the names of the network's workers."""
    n = len(topology.workers)
    if graph.builtin:
        return named(graph.kind, n, scenario.seed, graph.settings)
    pairs = graph.options if graph.kind == "links" else [(e.a, e.b) for e in _from(graph, scenario).edges]
    gossip = nx.empty_graph(n)
    gossip.add_edges_from(_ranks(pairs, topology))
    return gossip


def _changing(graph: Graph, n: int, seed: int) -> Gossip:
    """A graph with another matrix in each round."""
    if graph.kind == "one-peer-exponential":
        return mixing.one_peer_exponential(n)
    own = graph.settings.get("seed")
    return mixing.random_pairs(n, seed if own is None else own)


def _directed(arcs: Sequence[tuple[str, str]], topology: Topology) -> nx.DiGraph:
    """One-way edges between the network's workers."""
    found: dict[tuple[int, int], None] = {}
    for a, b in _ranks(arcs, topology):
        if (a, b) in found:
            raise TopologyError(f"arc w{a} → w{b} is listed twice")
        found[a, b] = None
    gossip = nx.empty_graph(len(topology.workers), create_using=nx.DiGraph)
    gossip.add_edges_from(found)
    return gossip


def _ranks(pairs: Sequence[tuple[str, str]], topology: Topology) -> Iterator[tuple[int, int]]:
    rank = {name: number for number, name in enumerate(topology.workers)}
    for a, b in pairs:
        for name in (a, b):
            if topology.node(name) not in rank:
                raise TopologyError(f"{name} is a switch: only workers gossip")
        yield rank[a], rank[b]
