"""How packets will travel: follows a network's own route tables by longest prefix, as its routers will."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING

from testbed.plan import Path
from testbed.topology.addresses import span

if TYPE_CHECKING:
    from testbed.network.shape import Shape
    from testbed.plan import NetworkPlan


class Forwarding:
    """What every router does with packets for every worker."""

    def __init__(self, network: NetworkPlan) -> None:
        self.network = network
        self.next_link = {router: _expand(network, router) for router in network.routers}

    def hops(self, source: int, target: int) -> tuple[tuple[str, ...], list[Shape]]:
        """Routers from one worker to another by rank, and the shapes of the links between them."""
        router, goal = self.network.workers[source].router, self.network.workers[target].router
        routers, shapes = [router], []
        while router != goal:
            link = self.network.links[self.next_link[router][target]]
            forward = router == link.a
            router = link.b if forward else link.a
            shapes.append(link.ab if forward else link.ba)
            routers.append(router)
            if len(routers) > len(self.network.routers):
                raise AssertionError(f"packets to {goal} loop: {' '.join(routers)}")
        return tuple(routers), shapes


def paths(network: NetworkPlan) -> tuple[Path, ...]:
    """All pairs of workers, lower rank first."""
    forwarding = Forwarding(network)
    found: list[Path] = []
    for a, b in combinations(network.workers, 2):
        hops, there = forwarding.hops(a.rank, b.rank)
        back, again = forwarding.hops(b.rank, a.rank)
        rtt = sum(shape.latency for shape in there) + sum(shape.latency for shape in again)
        found.append(Path(a.name, b.name, hops, back, rtt, _slowest(there), _slowest(again)))
    return tuple(found)


def _expand(network: NetworkPlan, router: str) -> list[int]:
    """The link for each worker's number by longest prefix: longer ones are written over shorter ones."""
    table = [-1] * len(network.workers)
    for route in sorted(network.routes[router], key=lambda route: int(route.prefix.split("/")[1])):
        for number in span(route.prefix):
            if number >= len(table):
                break
            table[number] = route.link
    return table


def _slowest(shapes: Iterable[Shape]) -> int | None:
    return min((shape.rate for shape in shapes if shape.rate is not None), default=None)
