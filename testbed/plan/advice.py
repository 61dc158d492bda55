"""Warns of what looks wrong with a network before it is built: numbers beyond the emulation, surprising links. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from testbed.link.shape import SHARES, WRITTEN, disturbs
from testbed.scenario.units import Duration, Rate
from testbed.topology.graph import Topology, listing

if TYPE_CHECKING:
    from testbed.link.shape import Shape
    from testbed.plan.model import NetworkPlan
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
    """Yield warnings about a variant's network. `base`: the scenario as written, before the sweep spelt it out."""
    yield from _overruled(base, topology)
    yield from _rates(network)
    yield from _latencies(network)
    yield from _queues(network)
    yield from _disturbed(network)
    yield from _detours(network, topology, detours)
    if scenario.compute.kind == "real" and len(network.workers) > cores:
        yield (
            f"{len(network.workers)} workers compute on {cores} cores and slow each other down; "
            "compute: {step_time: 60ms} keeps that out of the comparison"
        )


def _overruled(base: Scenario, topology: Topology) -> Iterator[str]:
    """Warn of a default (or a sweep over it) that no link uses because the topology has its own numbers."""
    for name in WRITTEN:
        swept = f"network.link.{name}" in base.sweep
        default = type(base.network.link).model_fields[name].default
        stated = swept or getattr(base.network.link, name) != default
        if stated and topology.edges and all(name in numbers for e in topology.edges for numbers in (e.ab, e.ba)):
            where = base.where(f"sweep.network.link.{name}" if swept else f"network.link.{name}")
            yield f"{where}: network.link.{name} has no effect: {topology.name} states the {name} of every link"


def _rates(network: NetworkPlan) -> Iterator[str]:
    rates = {link.name: max(shape.rate or 0 for shape in (link.ab, link.ba)) for link in network.links}
    factor = network.slow_motion
    if fast := [name for name, rate in rates.items() if rate > FASTEST_LINK * factor]:
        limit = Rate(round(FASTEST_LINK * factor))
        yield f"more than {limit} is hard to emulate: {_links(fast)}; the fidelity check will tell"
    total = sum(rates.values())
    if total > FASTEST_NETWORK * factor:
        limit = Rate(round(FASTEST_NETWORK * factor))
        yield (
            f"all links together carry {Rate(total)}; above about {limit} of traffic at once the "
            "machine's CPU sets the pace, not the links"
        )


def _latencies(network: NetworkPlan) -> Iterator[str]:
    shortest = SHORTEST_LATENCY / network.slow_motion
    if short := _where(network, lambda shape, _: shape.latency < shortest):
        yield f"latency below {_time(shortest)}, which the emulation itself adds: {_links(short)}"
    if reordered := _where(network, lambda shape, _: shape.jitter > 0 and shape.rate is None):
        yield f"jitter without a rate reorders packets: {_links(reordered)}"
    if idle := _where(network, lambda shape, _: shape.reorder > 0 and shape.latency == 0):
        yield f"reorder needs a latency, else nothing is under way that could be overtaken: {_links(idle)}"
    if cut := _where(network, lambda shape, _: shape.jitter > shape.latency / 2):
        yield f"jitter of more than half the latency makes ways longer, as none takes less than nothing: {_links(cut)}"


def _queues(network: NetworkPlan) -> Iterator[str]:
    from testbed.link.netem import buffer_seconds, wire_bytes

    def queue(shape: Shape, reverse: Shape) -> float:
        if shape.rate is None:
            return 0.0
        if shape.limit is not None:
            return shape.limit * wire_bytes(network.mtu) * 8 / shape.rate - shape.latency
        return buffer_seconds(shape, reverse)

    if long := _where(network, lambda shape, reverse: queue(shape, reverse) > LONGEST_QUEUE):
        yield f"a full queue adds more than {Duration(LONGEST_QUEUE)}: {_links(long)}; set buffer lower"


def _disturbed(network: NetworkPlan) -> Iterator[str]:
    """Warn of lost super-packets: netem loses one as a whole. Shaping forbids them there, where the rate lets it."""
    from testbed.link.netem import gso_segments

    if not any(disturbs(shape) for link in network.links for shape in (link.ab, link.ba)):
        return
    leaving: dict[str, list[Shape]] = {}
    for link in network.links:
        leaving.setdefault(link.a, []).append(link.ab)
        leaving.setdefault(link.b, []).append(link.ba)
    sent = {worker.router: gso_segments(leaving[worker.router], network.mtu) for worker in network.workers}
    if max(sent.values()) == 1:
        return
    for name in SHARES:
        there = [link for link in network.links if getattr(link.ab, name) or getattr(link.ba, name)]
        crossing = network.pairs.crossing([link.index for link in there])
        segments = max((sent[w.router] for w in network.workers if crossing[w.rank].any()), default=1)
        if there and segments > 1:
            yield (
                f"{name} on {_links([link.name for link in there])} takes up to {segments} packets at once: workers "
                "there send that many as one, to save CPU at these rates"
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
    """Return the names of the links with such a direction (given the other one, too)."""
    return [link.name for link in network.links if holds(link.ab, link.ba) or holds(link.ba, link.ab)]


def _links(names: Sequence[str]) -> str:
    return f"{'link' if len(names) == 1 else 'links'} {listing(names, 4)}"


def _time(seconds: float) -> str:
    return str(Duration(round(seconds, 6)))
