"""Who hands packets on to whom: for every router and destination the link to leave by. Pure; the plan calls it.

Routes depend on the destination alone and form a tree towards it, so they cannot loop. Two nodes that are linked use
that link, even where a detour would be quicker: a scenario's numbers for a link are what its ends meet. All other
traffic takes the least latency, or the fewest hops. A worker that hangs on one switch is reached as that switch is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Metric = Literal["latency", "hops"]
Costs = NDArray[Any]  # int64, or Python's whole numbers where sums may not fit
FITS = 1 << 62  # into 64 bits, and so does the sum of two


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


@dataclass(frozen=True, eq=False)
class Routing:
    """Who forwards by which link."""

    next_link: NDArray[np.int32]  # [node, worker]: the link towards the worker; −1 at the worker's own router
    detours: tuple[Detour, ...]


@dataclass(frozen=True, eq=False)
class _Leaving:
    """The arcs that leave one node, the next node in cyclic order of numbers first."""

    targets: NDArray[np.intp]
    links: NDArray[np.int32]
    costs: Costs
    pinned: NDArray[np.intp]  # which of them lead to a root,
    columns: NDArray[np.intp]  # and to which
    own: int | None  # the column of the node itself, if it is a root


def route(nodes: int, workers: int, arcs: Sequence[Arc], metric: Metric = "latency") -> Routing:
    """Routes between all workers; nodes 0…workers−1 are their routers, the others are switches."""
    into: list[list[Arc]] = [[] for _ in range(nodes)]
    for arc in arcs:
        into[arc.target].append(arc)
    hanging = {
        worker: into[worker][0]
        for worker in range(workers)
        if len(into[worker]) == 1 and into[worker][0].source >= workers
    }
    roots = [hanging[worker].source if worker in hanging else worker for worker in range(workers)]
    column = {root: number for number, root in enumerate(dict.fromkeys(roots))}

    costs, scale = _arc_costs(nodes, arcs, metric)
    leaving = _leaving(nodes, arcs, costs, column)
    reached = _reached(leaving, len(column))
    next_link = _next_links(leaving, reached)[:, [column[root] for root in roots]]
    for worker, arc in hanging.items():
        next_link[arc.source, worker] = arc.link
    next_link[np.arange(workers), np.arange(workers)] = -1
    detours = _detours(leaving, reached // scale, column, arcs) if metric == "latency" else ()
    return Routing(next_link, tuple(detours))


def _arc_costs(nodes: int, arcs: Sequence[Arc], metric: Metric) -> tuple[Costs, int]:
    """What each arc costs, and how much of that a nanosecond is.

    Whole numbers, so that equal ways are exactly equal; never 0, so that every hop comes closer to the root. What comes
    second (hops where latency counts, and the other way round) is too small to matter for what comes first.
    """
    nanoseconds = [round(arc.latency * 1e9) for arc in arcs]
    most = 1 + nodes * max(nanoseconds, default=0)
    scale = 1 if metric == "hops" else 1 + nodes
    costs = [most + one if metric == "hops" else scale * one + 1 for one in nanoseconds]
    farthest = 1 + nodes * max(costs, default=0)
    return np.array(costs, dtype=np.int64 if farthest < FITS else object), scale


def _leaving(nodes: int, arcs: Sequence[Arc], costs: Costs, column: Mapping[int, int]) -> list[_Leaving]:
    numbers: list[list[int]] = [[] for _ in range(nodes)]
    for number, arc in enumerate(arcs):
        numbers[arc.source].append(number)
    found = []
    for node, some in enumerate(numbers):
        some.sort(key=lambda number: (arcs[number].target - node) % nodes)
        targets = [arcs[number].target for number in some]
        pinned = [place for place, target in enumerate(targets) if target in column]
        found.append(
            _Leaving(
                np.array(targets, dtype=np.intp),
                np.array([arcs[number].link for number in some], dtype=np.int32),
                costs[some][:, np.newaxis],
                np.array(pinned, dtype=np.intp),
                np.array([column[targets[place]] for place in pinned], dtype=np.intp),
                column.get(node),
            )
        )
    return found


def _reached(leaving: Sequence[_Leaving], roots: int) -> Costs:
    """What the way from each node to each root costs, with the root's neighbours pinned to their own links.

    All roots at once: each node looks at its neighbours again, up and down the numbers in turn, until nothing changes.
    A sweep carries news along any run of numbers, so rings and grids need a handful, whatever their diameter.
    """
    dearest = max((arcs.costs.max() for arcs in leaving if len(arcs.costs)), default=0)
    reached = np.full((len(leaving), roots), 1 + len(leaving) * dearest, dtype=leaving[0].costs.dtype)
    for node, arcs in enumerate(leaving):
        _pin(reached[node], arcs)
    order = range(len(leaving))
    changed = True
    while changed:
        changed = False
        for node in order:
            arcs = leaving[node]
            if not len(arcs.targets):
                continue
            row = (reached[arcs.targets] + arcs.costs).min(axis=0)
            _pin(row, arcs)
            if (row < reached[node]).any():
                reached[node] = np.minimum(row, reached[node])
                changed = True
        order = order[::-1]
    return reached


def _pin(row: Costs, arcs: _Leaving) -> None:
    row[arcs.columns] = arcs.costs[arcs.pinned, 0]
    if arcs.own is not None:
        row[arcs.own] = 0


def _next_links(leaving: Sequence[_Leaving], reached: Costs) -> NDArray[np.int32]:
    """[node, root]: the link that begins the cheapest way.

    Among equal ways a node takes the neighbour that follows it most closely in cyclic order of numbers. That keeps
    regular graphs regular: a ring's antipodal traffic all turns the same way round instead of meeting at node 0.
    """
    found = np.full(reached.shape, -1, dtype=np.int32)
    for node, arcs in enumerate(leaving):
        if len(arcs.targets):
            found[node] = arcs.links[(reached[arcs.targets] + arcs.costs).argmin(axis=0)]
            found[node, arcs.columns] = arcs.links[arcs.pinned]
    return found


def _detours(
    leaving: Sequence[_Leaving], onward: Costs, column: Mapping[int, int], arcs: Sequence[Arc]
) -> list[Detour]:
    """Links between neighbours that are slower than a way around them, both as the routes run; `onward` in
    nanoseconds."""
    nanoseconds = {(arc.source, arc.target): round(arc.latency * 1e9) for arc in arcs}
    quicker: dict[tuple[int, int], tuple[int, int]] = {}  # by ends: nanoseconds around, through whom
    for source, some in enumerate(leaving):
        if len(some.targets) < 2:
            continue
        through = np.sort(some.targets)
        first = np.array([nanoseconds[source, node] for node in through], dtype=onward.dtype)[:, np.newaxis]
        around = first + onward[np.ix_(through, some.columns)]
        roots = some.targets[some.pinned]
        around[through[:, np.newaxis] == roots] = np.iinfo(np.int64).max
        for root, way, place in zip(roots.tolist(), around.min(axis=0), around.argmin(axis=0), strict=True):
            if way < nanoseconds[source, root]:
                quicker[source, root] = int(way), int(through[place])
    into: dict[int, list[Arc]] = {}
    for arc in arcs:
        into.setdefault(arc.target, []).append(arc)
    found = []
    for root in column:
        for arc in into.get(root, ()):
            if (arc.source, root) in quicker:
                way, node = quicker[arc.source, root]
                found.append(Detour(arc.link, arc.source, root, arc.latency, way / 1e9, node))
    return found
