"""What looks wrong with a network before it is built: numbers beyond the emulation, links that surprise. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from testbed.scenario.units import Duration, Rate
from testbed.topology.graph import Topology, listing

if TYPE_CHECKING:
    from testbed.network.shape import Shape
    from testbed.plan import NetworkPlan
    from testbed.scenario.model import Scenario
    from testbed.topology.routing import Detour

FASTEST_LINK = 1_000_000_000  # bit/s; one core forwards about this much of MTU-sized packets through netem
FASTEST_NETWORK = 2_000_000_000
SHORTEST_LATENCY = 0.0001  # seconds: what the emulation itself adds
LONGEST_QUEUE = 1.0  # seconds


def advice(
    base: Scenario,
    scenario: Scenario,
    topology: Topology,
    network: NetworkPlan,
    detours: Sequence[Detour],
    cores: int,
) -> Iterator[str]:
    """Warnings about a variant's network. `base` is the scenario as written, before the sweep spelt everything out."""
    yield from _overruled(base, topology)
    yield from _rates(network)
    yield from _latencies(network)
    yield from _queues(network)
    yield from _losses(network)
    yield from _detours(network, topology, detours)
    if scenario.compute.kind == "real" and len(network.workers) > cores:
        yield (
            f"{len(network.workers)} workers compute on {cores} cores and slow each other down; "
            "compute: {step_time: 60ms} keeps that out of the comparison"
        )


def _overruled(base: Scenario, topology: Topology) -> Iterator[str]:
    """A default (or a sweep over it) that no link uses because the topology states its own numbers."""
    for name in ("latency", "rate", "jitter", "loss"):
        swept = f"network.link.{name}" in base.sweep
        default = type(base.network.link).model_fields[name].default
        stated = swept or getattr(base.network.link, name) != default
        if stated and topology.edges and all(name in numbers for e in topology.edges for numbers in (e.ab, e.ba)):
            where = base.where(f"sweep.network.link.{name}" if swept else f"network.link.{name}")
            yield f"{where}: network.link.{name} has no effect: {topology.name} states the {name} of every link"


def _rates(network: NetworkPlan) -> Iterator[str]:
    rates = {link.name: max(shape.rate or 0 for shape in (link.ab, link.ba)) for link in network.links}
    if fast := [name for name, rate in rates.items() if rate > FASTEST_LINK]:
        yield f"more than {Rate(FASTEST_LINK)} is hard to emulate: {_links(fast)}; the fidelity check will tell"
    total = sum(rates.values())
    if total > FASTEST_NETWORK:
        yield (
            f"all links together carry {Rate(total)}; above about {Rate(FASTEST_NETWORK)} of traffic at once the "
            "machine's CPU sets the pace, not the links"
        )


def _latencies(network: NetworkPlan) -> Iterator[str]:
    if short := _where(network, lambda shape, _: shape.latency < SHORTEST_LATENCY):
        yield f"latency below {Duration(SHORTEST_LATENCY)}, which the emulation itself adds: {_links(short)}"
    if reordered := _where(network, lambda shape, _: shape.jitter > 0 and shape.rate is None):
        yield f"jitter without a rate reorders packets: {_links(reordered)}"
    if cut := _where(network, lambda shape, _: shape.jitter > shape.latency / 2):
        yield f"jitter of more than half the latency makes ways longer, as none takes less than nothing: {_links(cut)}"


def _queues(network: NetworkPlan) -> Iterator[str]:
    from testbed.network.shaping import buffer_seconds, wire_bytes

    def queue(shape: Shape, reverse: Shape) -> float:
        if shape.rate is None:
            return 0.0
        if shape.limit is not None:
            return shape.limit * wire_bytes(network.mtu) * 8 / shape.rate - shape.latency
        return buffer_seconds(shape, reverse)

    if long := _where(network, lambda shape, reverse: queue(shape, reverse) > LONGEST_QUEUE):
        yield f"a full queue adds more than {Duration(LONGEST_QUEUE)}: {_links(long)}; set buffer lower"


def _losses(network: NetworkPlan) -> Iterator[str]:
    """netem loses a super-packet as a whole; shaping forbids them next to lossy links, where the rate lets it."""
    from testbed.network.shaping import gso_segments

    if not (lossy := _where(network, lambda shape, _: shape.loss > 0)):
        return
    leaving: dict[str, list[Shape]] = {}
    losing: set[frozenset[str]] = set()
    for link in network.links:
        leaving.setdefault(link.a, []).append(link.ab)
        leaving.setdefault(link.b, []).append(link.ba)
        if link.ab.loss or link.ba.loss:
            losing.add(frozenset((link.a, link.b)))
    senders = {
        way[0]
        for path in network.paths
        for way in (path.hops, path.back)
        if any(frozenset(hop) in losing for hop in pairwise(way))
    }
    segments = max((gso_segments(leaving[name], network.mtu) for name in senders), default=1)
    if segments > 1:
        yield (
            f"loss on {_links(lossy)} takes up to {segments} packets at once: workers there send that many as one, "
            "to save CPU at these rates"
        )


def _detours(network: NetworkPlan, topology: Topology, detours: Sequence[Detour]) -> Iterator[str]:
    if not detours:
        return
    worst = max(detours, key=lambda detour: detour.latency - detour.detour)
    names = list(dict.fromkeys(network.links[detour.link].name for detour in detours))
    source, target, through = (topology.nodes[node] for node in (worst.source, worst.target, worst.through))
    yield (
        f"direct links are slower than a detour and still carry their ends' traffic: {_links(names)} "
        f"(worst: {source} to {target} {_time(worst.latency)}, through {through} {_time(worst.detour)})"
    )


def _where(network: NetworkPlan, holds: Callable[[Shape, Shape], bool]) -> list[str]:
    """Names of the links of which a direction (with the other one beside it) is so."""
    return [link.name for link in network.links if holds(link.ab, link.ba) or holds(link.ba, link.ab)]


def _links(names: Sequence[str]) -> str:
    return f"{'link' if len(names) == 1 else 'links'} {listing(names, 4)}"


def _time(seconds: float) -> str:
    return str(Duration(round(seconds, 6)))
