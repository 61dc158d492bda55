"""The plan as plain data: networks, links, routes and cells. `make.py` builds it; everything that touches the system
reads it.

Importing this module is cheap (no networkx, no numpy): the network's builder reads plans where starting takes long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from testbed.link.shape import Shape

if TYPE_CHECKING:
    from testbed.plan.gpus import Assigned
    from testbed.plan.pairs import Pairs
    from testbed.plan.paths import Forwarding
    from testbed.scenario.model import Scenario
    from testbed.topology.gossip import Gossip


@dataclass(frozen=True)
class WorkerPlan:
    """A worker and where it attaches to the network."""

    rank: int
    name: str
    router: str
    address: str  # of the worker's eth0, in a /30 of its own
    gateway: str  # of the router's port, the other address of that /30


@dataclass(frozen=True)
class TraceFile:
    """A recording that drives one direction of a link while training runs."""

    kind: str  # "csv" or "mahimahi"
    path: str


@dataclass(frozen=True)
class LinkPlan:
    """A link between two routers: a veth pair with one netem on each end."""

    index: int
    a: str
    b: str
    ab: Shape  # what packets from a to b meet
    ba: Shape
    address_a: str  # the two ends of a /31
    address_b: str
    trace_ab: TraceFile | None = None
    trace_ba: TraceFile | None = None

    @property
    def name(self) -> str:
        return f"{self.a}-{self.b}"


@dataclass(frozen=True, slots=True)  # of a thousand workers there are a hundred thousand
class Route:
    """At some router: packets to `prefix` leave through link number `link`."""

    prefix: str
    link: int


@dataclass(frozen=True)
class NetworkPlan:
    """Everything the network builder needs."""

    name: str
    workers: tuple[WorkerPlan, ...]
    routers: tuple[str, ...]
    links: tuple[LinkPlan, ...]
    routes: Mapping[str, tuple[Route, ...]]  # by router
    mtu: int = 1500
    congestion: str | None = None  # TCP congestion control asked for; None: the host's default
    slow_motion: float = 1.0  # real seconds that a second of all the above lasts

    @cached_property
    def directions(self) -> Mapping[tuple[str, str], Shape]:
        """Return what packets meet between two linked routers, by (from, to)."""
        there = {(link.a, link.b): link.ab for link in self.links}
        return there | {(link.b, link.a): link.ba for link in self.links}

    @cached_property
    def forwarding(self) -> Forwarding:
        """Return how packets travel between any two workers, as the route tables send them."""
        from testbed.plan.paths import Forwarding

        return Forwarding(self)

    @cached_property
    def pairs(self) -> Pairs:
        """Return sums over the paths between all workers: hops, latencies, slowest links."""
        from testbed.plan.pairs import Pairs

        return Pairs(self)

    @cached_property
    def paths(self) -> tuple[WorkerPath, ...]:
        """Return the paths between all pairs of workers, hop by hop: of many workers, more than fit in memory."""
        from testbed.plan.paths import paths

        return paths(self)

    def stretched(self) -> NetworkPlan:
        """Return the same network in real time, as measurements see it."""
        factor = self.slow_motion
        links = [replace(one, ab=one.ab.stretched(factor), ba=one.ba.stretched(factor)) for one in self.links]
        return replace(self, links=tuple(links), slow_motion=1.0) if factor != 1 else self

    def same_structure(self, other: NetworkPlan) -> bool:
        """Whether the other network differs only in shapes (and traces), so that this one can be changed into it."""

        def bare(plan: NetworkPlan) -> NetworkPlan:
            links = [replace(link, ab=Shape(), ba=Shape(), trace_ab=None, trace_ba=None) for link in plan.links]
            return replace(plan, name="", links=tuple(links))

        return bare(self) == bare(other)


@dataclass(frozen=True)
class WorkerPath:
    """The paths there and back between two workers. Routes follow the destination, so the two may differ."""

    source: str
    target: str
    hops: tuple[str, ...]  # routers from source to target, both included
    back: tuple[str, ...]  # routers from target to source
    rtt: float  # seconds, of an empty network
    rate: int | None  # bit/s of the slowest link there; None: no link is limited
    rate_back: int | None


@dataclass(frozen=True)
class Point:
    """One network (and gossip graph) that cells run on; a sweep over links gives one for each combination."""

    index: int
    label: str  # the swept values, e.g. "latency=5ms rate=1gbit"; empty without a sweep
    network: NetworkPlan
    gossip: Gossip
    gpus: Assigned  # by worker; empty where GPUs were not looked for


@dataclass(frozen=True)
class Cell:
    """One training run: one network point, one method, one repeat."""

    id: str  # for file names; the same for the same scenario
    label: str
    point: int  # index into Plan.points
    variant: int  # index into Plan.variants
    method: str
    options: Mapping[str, Any]
    repeat: int
    seed: int
    setting: str = ""  # the swept values, of the network or of anything else


@dataclass(frozen=True)
class Plan:
    """Everything a run will do."""

    name: str
    points: tuple[Point, ...]
    cells: tuple[Cell, ...]
    warnings: tuple[str, ...]
    variants: tuple[Scenario, ...]  # the scenario with one combination of the sweep's values each

    @property
    def network(self) -> NetworkPlan:
        return self.points[0].network

    @property
    def gossip(self) -> Gossip:
        return self.points[0].gossip

    @property
    def paths(self) -> tuple[WorkerPath, ...]:
        return self.network.paths
