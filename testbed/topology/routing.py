"""Who hands packets on to whom: for every router and destination the link to leave by. Pure; the plan calls it.

Routes depend on the destination alone and form a tree towards it, so they cannot loop. Two nodes that are linked use
that link, even where a detour would be quicker: a scenario's numbers for a link are what its ends meet. All other
traffic takes the least latency, or the fewest hops. A worker that hangs on one switch is reached as that switch is.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np

Metric = Literal["latency", "hops"]
HOP = 1  # in the low bits of a latency, so that the fewer hops win where latencies are equal
NANOSECOND = 1 << 20
MANY_NANOSECONDS = 1 << 60  # a hop's weight where hops come first


@dataclass(frozen=True)
class Arc:
    """One direction of a link between nodes, by number."""

    source: int
    target: int
    link: int
    latency: float  # seconds


@dataclass(frozen=True)
class Detour:
    """A link that carries the traffic of its ends although a longer way is quicker."""

    link: int
    source: int
    target: int
    latency: float
    detour: float  # seconds, by `through`
    through: int


@dataclass(frozen=True)
class Routing:
    """Who forwards by which link."""

    next_link: tuple[tuple[int, ...], ...]  # [node][worker]: the link towards the worker; −1 at the worker's own router
    detours: tuple[Detour, ...]


_Hop = tuple[int, int, int]  # source, link, cost


@dataclass(frozen=True)
class _Tree:
    """The way to one root: the link each node forwards by (−1 at the root), and what the whole way costs."""

    links: list[int]
    costs: list[int]


def route(nodes: int, workers: int, arcs: Sequence[Arc], metric: Metric = "latency") -> Routing:
    """Routes between all workers; nodes 0…workers−1 are their routers, the others are switches."""
    into: list[list[_Hop]] = [[] for _ in range(nodes)]
    for arc in arcs:
        into[arc.target].append((arc.source, arc.link, _cost(arc, metric)))

    @cache
    def tree(root: int) -> _Tree:
        return _tree(root, into)

    next_link = [[-1] * workers for _ in range(nodes)]
    roots: list[int] = []
    for worker in range(workers):
        hangs = len(into[worker]) == 1 and into[worker][0][0] >= workers
        root = into[worker][0][0] if hangs else worker
        roots.append(root)
        for node, link in enumerate(tree(root).links):
            next_link[node][worker] = link
        next_link[worker][worker] = -1
        if hangs:
            next_link[root][worker] = into[worker][0][1]

    detours = _detours({root: tree(root) for root in roots}, nodes, arcs) if metric == "latency" else ()
    return Routing(tuple(map(tuple, next_link)), tuple(detours))


def _cost(arc: Arc, metric: Metric) -> int:
    """Whole numbers, so that equal ways are exactly equal; never 0, so that every hop comes closer to the root."""
    nanoseconds = round(arc.latency * 1e9)
    return MANY_NANOSECONDS + nanoseconds if metric == "hops" else nanoseconds * NANOSECOND + HOP


def _tree(root: int, into: Sequence[Sequence[_Hop]]) -> _Tree:
    """Dijkstra's algorithm towards the root, with the root's neighbours pinned to their own links.

    Among equal ways a node takes the neighbour that follows it most closely in cyclic order of numbers. That keeps
    regular graphs regular: a ring's antipodal traffic all turns the same way round instead of meeting at node 0.
    """
    nodes = len(into)
    links, costs, parents = [-1] * nodes, [-1] * nodes, [-1] * nodes
    costs[root] = 0
    settled = [False] * nodes  # what is settled keeps its way: the root, its neighbours, and nodes taken off the heap
    settled[root] = True
    heap: list[tuple[int, int]] = []
    for source, link, cost in into[root]:
        links[source], costs[source], settled[source] = link, cost, True
        heap.append((cost, source))
    heapq.heapify(heap)
    left = nodes - sum(settled)
    while heap and left:
        reached, node = heapq.heappop(heap)
        if not settled[node]:
            settled[node] = True
            left -= 1
        elif reached > costs[node]:
            continue  # found again more cheaply since
        for source, link, cost in into[node]:
            if settled[source]:
                continue
            total = reached + cost
            nearer = total == costs[source] and (node - source) % nodes < (parents[source] - source) % nodes
            if links[source] < 0 or total < costs[source]:
                heapq.heappush(heap, (total, source))
                nearer = True
            if nearer:
                links[source], costs[source], parents[source] = link, total, node
    return _Tree(links, costs)


def _detours(trees: Mapping[int, _Tree], nodes: int, arcs: Sequence[Arc]) -> list[Detour]:
    """Links between neighbours that are slower than a way around them, both as the routes run."""
    latency = np.full((nodes, nodes), np.inf)  # [source, target] in nanoseconds
    into: dict[int, list[Arc]] = {}
    for arc in arcs:
        latency[arc.source, arc.target] = round(arc.latency * 1e9)
        into.setdefault(arc.target, []).append(arc)
    found: list[Detour] = []
    for root, tree in trees.items():
        onward = np.array([cost // NANOSECOND for cost in tree.costs], dtype=float)
        around = latency + onward
        around[:, root] = np.inf
        through = around.argmin(axis=1)
        best = around[np.arange(nodes), through]
        for arc in into.get(root, ()):
            if best[arc.source] < latency[arc.source, root]:
                way = float(best[arc.source]) / 1e9
                found.append(Detour(arc.link, arc.source, root, arc.latency, way, int(through[arc.source])))
    return found
