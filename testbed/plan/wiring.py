"""A topology with shapes → the network's plan: addresses, links and route tables. Pure; the plan calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.plan.model import LinkPlan, NetworkPlan, Route, WorkerPlan
from testbed.plan.shapes import Directions, link_directions, trace_file
from testbed.topology.addresses import link_addresses, route_tables, worker_addresses
from testbed.topology.graph import Topology, located
from testbed.topology.routing import Arc, Detour, route

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario


def network_plan(scenario: Scenario, topology: Topology) -> tuple[NetworkPlan, tuple[Detour, ...]]:
    """Return the network to build, and the links that are slower than a way around them."""
    directions = link_directions(scenario, topology)
    with located(scenario.where("workers")):
        workers = tuple(_worker(rank, name) for rank, name in enumerate(topology.workers))
        links = tuple(_link(index, edge.a, edge.b, directions, scenario) for index, edge in enumerate(topology.edges))

    number = {name: index for index, name in enumerate(topology.nodes)}
    arcs = [
        Arc(number[source], number[target], link.index, shape.latency)
        for link in links
        for source, target, shape in ((link.a, link.b, link.ab), (link.b, link.a, link.ba))
    ]
    routing = route(len(number), len(workers), arcs, scenario.network.routing)
    tables = {
        name: tuple(Route(prefix, link) for prefix, link in table)
        for name, table in zip(topology.nodes, route_tables(routing.next_link), strict=True)
    }
    network = NetworkPlan(
        name=scenario.name,
        workers=workers,
        routers=topology.nodes,
        links=links,
        routes=tables,
        mtu=scenario.network.mtu,
        congestion=scenario.network.congestion,
        slow_motion=float(scenario.slow_motion) if isinstance(scenario.slow_motion, float | int) else 1.0,
    )
    return network, routing.detours


def _worker(rank: int, name: str) -> WorkerPlan:
    gateway, address = worker_addresses(rank)
    return WorkerPlan(rank=rank, name=name, router=name, address=address, gateway=gateway)


def _link(index: int, a: str, b: str, directions: Directions, scenario: Scenario) -> LinkPlan:
    address_a, address_b = link_addresses(index)
    ab, ba = directions[a, b], directions[b, a]
    return LinkPlan(
        index=index,
        a=a,
        b=b,
        ab=ab.shape,
        ba=ba.shape,
        address_a=address_a,
        address_b=address_b,
        trace_ab=trace_file(scenario, ab),
        trace_ba=trace_file(scenario, ba),
    )
