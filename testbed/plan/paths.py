"""Follows a network's own route tables by longest prefix, as its routers will, to find the paths of packets.

A path costs as much as it is long, and only requested paths are followed: between all workers of a large network there
are more hops than fit in memory. What can be known of all pairs without their hops is in `pairs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from testbed.plan.model import WorkerPath
from testbed.topology.addresses import span

if TYPE_CHECKING:
    from testbed.link.shape import Shape
    from testbed.plan.model import NetworkPlan

NOWHERE = -1  # in the place of a route: a worker that no entry of the table leads to, such as the router's own


class Forwarding:
    """How every router forwards packets for every worker."""

    def __init__(self, network: NetworkPlan) -> None:
        self.network = network
        self._tables: dict[str, list[int]] = {}

    def entries(self, router: str) -> list[int]:
        """Return, by worker's number, which of the router's routes its packets take."""
        if router not in self._tables:
            self._tables[router] = _expand(self.network, router)
        return self._tables[router]

    def way(self, source: int, target: int) -> tuple[str, ...]:
        """Return the routers from one worker to another, by rank, both ends included."""
        network = self.network
        router, goal = network.workers[source].router, network.workers[target].router
        routers = [router]
        while router != goal:
            if (entry := self.entries(router)[target]) == NOWHERE:
                raise AssertionError(f"{router} has no route to {goal}")
            link = network.links[network.routes[router][entry].link]
            router = link.b if router == link.a else link.a
            routers.append(router)
            if len(routers) > len(network.routers):
                raise AssertionError(f"packets to {goal} loop: {' '.join(routers)}")
        return tuple(routers)

    def path(self, source: int, target: int) -> WorkerPath:
        """Return the paths there and back, by rank."""
        ways = self.way(source, target), self.way(target, source)
        there, back = ([self.network.directions[hop] for hop in pairwise(way)] for way in ways)
        return WorkerPath(
            self.network.workers[source].name,
            self.network.workers[target].name,
            *ways,
            sum(shape.latency for shape in there) + sum(shape.latency for shape in back),
            _slowest(there),
            _slowest(back),
        )


def paths(network: NetworkPlan) -> tuple[WorkerPath, ...]:
    """Return the paths of all pairs of workers, lower rank first."""
    return tuple(network.forwarding.path(a, b) for a, b in combinations(range(len(network.workers)), 2))


def _expand(network: NetworkPlan, router: str) -> list[int]:
    """Return the route for each worker's number by longest prefix: longer ones are written over shorter ones."""
    workers = len(network.workers)
    table = [NOWHERE] * workers
    routes = network.routes[router]
    for number in sorted(range(len(routes)), key=lambda number: -len(span(routes[number].prefix))):
        numbers = span(routes[number].prefix)
        stop = min(numbers.stop, workers)
        table[numbers.start : stop] = [number] * max(0, stop - numbers.start)
    return table


def _slowest(shapes: Iterable[Shape]) -> int | None:
    return min((shape.rate for shape in shapes if shape.rate is not None), default=None)
