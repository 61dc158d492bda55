"""Chooses the slow-motion factor a network needs on this machine: arithmetic on a trial's measurements (trial.py).
Pure.

Workers finish their gradients together, and then all encode, send and mix at once. What n of them need of p cores takes
n/p times as long as each would alone, while the scenario gives each its own time, stretched. The box must carry the
packets of all links at once. The smallest factor of a short list with which both fit is taken, with a margin if it is
more than 1. All cells of a network share it, so that methods are compared under the same conditions.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError
from testbed.link.netem import MAXIMUM_LATENCY, MOST_JITTER, wire_bytes
from testbed.link.shape import Shape
from testbed.plan.model import Cell, NetworkPlan, Plan, Point
from testbed.plan.superpackets import CALM, fitting
from testbed.scenario.units import Duration, Rate

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario
    from testbed.topology.gossip import Gossip

FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)
SPARE = 1.25  # times what is needed
WAITING = 0.10  # share of a step that workers may wait for a processor: what the verdict allows
LEAST_CORES = 0.5  # that are left beside the box, however busy it is
PER_MESSAGE, PER_BYTE = 150e-6, 1 / 300e6  # seconds of a processor to send and receive: the kernel's and the backend's
CARRIED = {"host": 200_000.0, "uml": 40_000.0}  # packets of full size that cross links, in a second of a box
PER_SEGMENT = 0.1  # of a packet's work, for every further one in a super-packet
SLOWEST_RATE = 400  # bit/s of real time: netem counts whole bytes, of which 50 are exact to a percent


@dataclass(frozen=True)
class Load:
    """What a step of one method costs each worker, as measured by a trial."""

    method: str
    codec: float = 0.0  # seconds of a processor: encode, decode, mix, update
    gradient: float = 0.0  # likewise, of a gradient that is really computed
    given: float = 0.0  # seconds that the scenario gives to a gradient
    messages: float = 0.0  # sent
    rounds: float = 1.0  # of messages that wait for those before
    per_edge: float = 0.0  # bytes to each gossip neighbour
    by_offset: Mapping[int, float] = field(default_factory=dict)  # bytes to the worker so many ranks on
    reduced: float = 0.0  # bytes of all-reduces
    overlaps: bool = False  # messages travel while the gradient is computed
    pipelined: bool = False


@dataclass(frozen=True)
class Room:
    """The capacity of a machine."""

    cores: int
    packets_per_second: float = CARRIED["uml"]


def room(box: str) -> Room:
    """Return the capacity of this machine with a box of this kind: the slower one where it is not known yet."""
    return Room(len(os.sched_getaffinity(0)), CARRIED.get(box, CARRIED["uml"]))


def enough(network: NetworkPlan, gossip: Gossip, loads: Sequence[Load], room: Room) -> float:
    """Return the smallest factor with which all these loads fit; the largest possible one where none does."""
    possible = [factor for factor in FACTORS if not impossible(network, factor)]
    demands = [_demand(network, gossip, load) for load in loads]
    for factor in possible:
        if all(_fits(replace(network, slow_motion=factor), demand, room) for demand in demands):
            return factor
    return possible[-1] if possible else 1.0


def impossible(network: NetworkPlan, factor: float) -> str:
    """Return what the kernel could not do with these links, in words; empty where it can do all."""
    for link in network.links:
        for shape in (link.ab, link.ba):
            if words := _beyond(shape, factor):
                return f"link {link.name}: {words}"
    return ""


def check(scenario: Scenario, network: NetworkPlan) -> None:
    """Raise ScenarioError where the scenario names a factor with which its links cannot be emulated."""
    if words := impossible(network, network.slow_motion):
        where = scenario.where("slow_motion")
        raise ScenarioError(f"{where}: slow_motion {network.slow_motion:g}: {words}", hint="choose a smaller factor")


def slower(plan: Plan, cell: Cell) -> float | None:
    """Return the factor to try next where the cell's was not enough; None where it was asked for, or is the largest."""
    network = plan.points[cell.point].network
    factor = 2 * network.slow_motion
    if not plan.variants[cell.variant].chooses_slow_motion or factor > FACTORS[-1] or impossible(network, factor):
        return None
    return factor


def with_factors(plan: Plan, factors: Mapping[int, float]) -> Plan:
    """Return the plan with these factors, by the index of the point."""

    def paced(point: Point) -> Point:
        factor = factors.get(point.index, point.network.slow_motion)
        return replace(point, network=replace(point.network, slow_motion=factor))

    return replace(plan, points=tuple(map(paced, plan.points)))


def _beyond(shape: Shape, factor: float) -> str:
    real = shape.stretched(factor)
    if factor > 1 and real.latency > MAXIMUM_LATENCY:
        return f"{Duration(shape.latency)} become {real.latency:.0f} s; netem delays for {MAXIMUM_LATENCY:g} s at most"
    if factor > 1 and real.jitter > MOST_JITTER:
        return f"{Duration(shape.jitter)} of jitter become {real.jitter:.1f} s; netem has {MOST_JITTER:.1f} s at most"
    if factor > 1 and real.rate is not None and real.rate < SLOWEST_RATE:
        return f"{Rate(shape.rate or 0)} become {real.rate} bit/s, which netem cannot tell exactly"
    return ""


@dataclass(frozen=True)
class _Demand:
    """The demand of a load on a network, in scenario time."""

    load: Load
    step: float  # seconds that a step takes at least
    moved: float  # bytes that a worker sends
    sent: Mapping[int, float]  # bytes of each worker times the limited links that they cross
    sending: float  # seconds for which the busiest link is busy

    @property
    def transport(self) -> float:
        """Return the processor seconds to move a worker's messages, which nothing stretches."""
        return PER_MESSAGE * self.load.messages + PER_BYTE * self.moved


def _demand(network: NetworkPlan, gossip: Gossip, load: Load) -> _Demand:
    moved, shapes = _bytes(network, gossip, load), network.directions
    carried: defaultdict[tuple[str, str], float] = defaultdict(float)
    sent: defaultdict[int, float] = defaultdict(float)
    for pair, count in moved.items():
        for hop in pairwise(network.forwarding.way(*pair)):
            if shapes[hop].rate:
                carried[hop] += count
                sent[pair[0]] += count
    sending = max((8 * count / (shapes[hop].rate or 1) for hop, count in carried.items()), default=0.0)
    each = sum(moved.values()) / len(network.workers)
    return _Demand(load, step_seconds(network, gossip, load), each, sent, sending)


def _fits(network: NetworkPlan, demand: _Demand, room: Room) -> bool:
    factor, load, workers = network.slow_motion, demand.load, len(network.workers)
    spare = SPARE if factor > 1 else 1.0
    packets = _packets_per_second(network, demand) / factor
    if spare * packets > room.packets_per_second:
        return False
    of_box = packets / room.packets_per_second * min(1.0, demand.sending / demand.step if demand.step else 1.0)
    cores = max(LEAST_CORES, room.cores - of_box)
    if workers <= cores:
        return True
    crowd, waiting = spare * workers / cores, WAITING * demand.step
    gradient = load.given or load.gradient + waiting
    after = load.codec + demand.transport
    return crowd * load.gradient <= factor * gradient and crowd * after <= factor * (load.codec + waiting)


def _packets_per_second(network: NetworkPlan, demand: _Demand) -> float:
    """Return packets/s of all links while a step's messages travel, in scenario time; super-packets by cost."""
    if not demand.sending:
        return 0.0
    together = fitting(network, network.links, CALM["uml"])
    found = 0.0
    for worker in network.workers:
        segments = together[worker.name]
        cost = (1 + PER_SEGMENT * (segments - 1)) / (segments * wire_bytes(network.mtu))
        found += demand.sent.get(worker.rank, 0.0) * cost
    return found / demand.sending


def step_seconds(network: NetworkPlan, gossip: Gossip, load: Load) -> float:
    """Return the least seconds of a step, in scenario time."""
    from testbed.plan.floors import gossip_floor, pipelined_floor, ring_floor

    edges = dict(_edge_bytes(len(network.workers), gossip, load))
    floor = pipelined_floor if load.pipelined else gossip_floor
    exchange = floor(network, edges, load.rounds) + (ring_floor(network, load.reduced) if load.reduced else 0.0)
    gradient = load.given or load.gradient
    return load.codec + (max(gradient, exchange) if load.overlaps else gradient + exchange)


def _bytes(network: NetworkPlan, gossip: Gossip, load: Load) -> dict[tuple[int, int], float]:
    """Return the bytes of one step, by sender and receiver; all-reduces as rings."""
    workers = len(network.workers)
    found = defaultdict(float, _edge_bytes(workers, gossip, load))
    if load.reduced and workers > 1:
        for rank in range(workers):
            found[rank, (rank + 1) % workers] += 2 * (workers - 1) / workers * load.reduced
    return dict(found)


def _edge_bytes(workers: int, gossip: Gossip, load: Load) -> Iterator[tuple[tuple[int, int], float]]:
    if load.per_edge:
        for rank in range(workers):
            yield from (((rank, other), load.per_edge) for other in gossip.targets(0, rank))
    for offset, count in load.by_offset.items():
        for rank in range(workers):
            yield (rank, (rank + offset) % workers), count
