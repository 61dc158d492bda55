"""What every source of a topology gives: workers, switches and the links between them, with the numbers it knows.

Named graphs, files, Mininet topologies, regions and lists of links all become a `Topology`; the plan reads only that.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx

from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from testbed.scenario.links import LinkOptions

Numbers = Mapping[str, Any]  # fields of Shape in SI units, and `trace`; the scenario's `network.link` tells the rest
MOST_LINKS = 1 << 15  # as many as there are addresses for
NAME = re.compile(r"\w[\w.-]*")  # workers' names are those of hosts, files and directories
LONGEST_NAME = 63  # bytes, of a host; the paths of sockets have little more room


class TopologyError(ScenarioError):
    """A graph that cannot be, found by code that does not know the scenario's lines; `located` adds them."""


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put file:line in front of what the topology code finds wrong."""
    try:
        yield
    except TopologyError as error:
        raise ScenarioError(f"{where}: {error}", hint=error.hint) from error


@dataclass(frozen=True)
class Edge:
    """A link as its source lists it; a comes first in the link's name."""

    a: str
    b: str
    ab: Numbers = field(default_factory=dict)
    ba: Numbers = field(default_factory=dict)


@dataclass(frozen=True)
class Topology:
    """Nodes and links of a network before the scenario's own numbers are applied."""

    name: str
    workers: tuple[str, ...]  # by rank
    switches: tuple[str, ...]
    edges: tuple[Edge, ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        return self.workers + self.switches

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.nodes)

    def graph(self) -> nx.Graph:
        graph = nx.Graph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from((edge.a, edge.b) for edge in self.edges)
        return graph

    def worker_graph(self) -> nx.Graph:
        """Which ranks are direct neighbours."""
        rank = {name: number for number, name in enumerate(self.workers)}
        graph = nx.empty_graph(len(self.workers))
        graph.add_edges_from((rank[e.a], rank[e.b]) for e in self.edges if e.a in rank and e.b in rank)
        return graph

    def node(self, name: str) -> str:
        """The name, if a node has it."""
        if name not in self._known:
            raise TopologyError(
                f"unknown node {name!r} in topology {self.name}{did_you_mean(name, self.nodes)}",
                hint=f"nodes: {listing(self.nodes)}",
            )
        return name

    def check(self) -> Topology:
        """Itself, if it can be a network: names that can be used, each once, no link twice or to itself, in one
        piece, and not too large."""
        if len(self.edges) > MOST_LINKS:
            raise TopologyError(
                f"{self.name} has {len(self.edges)} links, and there are addresses for {MOST_LINKS}",
                hint="take fewer workers, or switches that they share",
            )
        for name in self.workers:
            _check_name(name, "worker")
        for name in self.switches:
            _check_name(name, "switch")
        if len(set(self.nodes)) < len(self.nodes):
            twice = next(name for name in self.nodes if self.nodes.count(name) > 1)
            raise TopologyError(f"two nodes are called {twice!r}")
        seen: set[frozenset[str]] = set()
        for edge in self.edges:
            if edge.a == edge.b:
                raise TopologyError(f"link from {edge.a} to itself")
            if frozenset((edge.a, edge.b)) in seen:
                raise TopologyError(f"link {edge.a}-{edge.b} is listed twice")
            seen.add(frozenset((edge.a, edge.b)))
        check_connected(self.graph(), self.name)
        return self


def _check_name(name: str, what: str) -> None:
    """Raise where a worker cannot be called so. A switch has no file and no host of its own, and may have spaces."""
    length, shown = len(name.encode(errors="replace")), name if len(name) <= 40 else f"{name[:40]}…"
    if length > LONGEST_NAME:
        raise TopologyError(
            f"the name of {what} {shown!r} has {length} bytes; at most {LONGEST_NAME} can be used",
            hint="names of workers are those of hosts and files: shorten it where it is defined",
        )
    if what == "worker" and not NAME.fullmatch(name):
        raise TopologyError(
            f"a worker cannot be called {shown!r}", hint="letters, digits and any of . _ -, a letter or digit first"
        )
    if not name.strip() or not name.isprintable():
        raise TopologyError(f"a {what} cannot be called {shown!r}", hint="a name needs letters that can be seen")


def check_connected(graph: nx.Graph, name: str) -> None:
    """Raise unless every node reaches every other; the error names the smallest piece."""
    pieces = sorted(nx.connected_components(graph), key=len)
    if len(pieces) > 1:
        order = list(graph)
        piece = sorted(pieces[0], key=order.index)
        raise TopologyError(
            f"{name} is not connected: it falls into {len(pieces)} pieces and nothing links "
            f"{listing([str(node) for node in piece])} to the rest"
        )


def settings(options: LinkOptions | None) -> Numbers:
    """What a scenario says about a link, as numbers."""
    if options is None:
        return {}
    return options.numbers() if options.trace is None else {**options.numbers(), "trace": options.trace}


def worker_names(n: int) -> tuple[str, ...]:
    return tuple(f"w{rank}" for rank in range(n))


def named_edges(graph: nx.Graph) -> tuple[Edge, ...]:
    """Links of a graph of ranks in canonical order: lower rank first, sorted."""
    return tuple(Edge(f"w{a}", f"w{b}") for a, b in sorted((min(e), max(e)) for e in graph.edges))


def did_you_mean(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else ""


def listing(names: Sequence[str], most: int = 8) -> str:
    """A list for people that stays short."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} in all)"
