"""Scenario → Plan: plain data made by pure functions. `testbed plan` prints it; all that touches the system takes it.

Importing this module is cheap (no networkx, no numpy): the network's builder reads plans where starting takes long.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from testbed.errors import ScenarioError
from testbed.network.shape import Shape

if TYPE_CHECKING:
    from testbed.runtime.gpus import Assigned, Supply
    from testbed.scenario.model import Scenario
    from testbed.scenario.sweep import Variant
    from testbed.topology.gossip import Gossip


@dataclass(frozen=True)
class WorkerPlan:
    """A worker and where it plugs into the network."""

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


@dataclass(frozen=True)
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

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """How packets travel between all pairs of workers, as the route tables send them."""
        from testbed.topology.paths import paths

        return paths(self)

    def same_structure(self, other: NetworkPlan) -> bool:
        """Whether the other network differs in shapes (and traces) alone, so that this one can be changed into it."""

        def bare(plan: NetworkPlan) -> NetworkPlan:
            links = [replace(link, ab=Shape(), ba=Shape(), trace_ab=None, trace_ba=None) for link in plan.links]
            return replace(plan, name="", links=tuple(links))

        return bare(self) == bare(other)


@dataclass(frozen=True)
class Path:
    """There and back between two workers. Routes follow the destination, so the two ways may differ."""

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
    gpus: Assigned  # by worker; empty where nobody has looked for GPUs


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
    def paths(self) -> tuple[Path, ...]:
        return self.network.paths


def plan(scenario: Scenario, cores: int | None = None, gpus: Supply | None = None) -> Plan:
    """What `testbed up` would do with this scenario on a machine with that many cores (default: this one) and these
    GPUs (default: nobody has looked, and all train on processors)."""
    from testbed.scenario.sweep import variants
    from testbed.topology.shapes import late_events

    cores = cores or len(os.sched_getaffinity(0))
    points: list[Point] = []
    cells: list[Cell] = []
    doubts: dict[str, list[str]] = {}  # each with the points it holds for
    all_variants = variants(scenario)
    for index, variant in enumerate(all_variants):
        point, found = _point(variant, scenario, cores, gpus)
        same = next((known for known in points if _same(known, point)), None)
        if same is None:
            same = replace(point, index=len(points))
            points.append(same)
            for warning in found:
                doubts.setdefault(warning, []).append(same.label)
        cells += _cells(index, variant, same.index)
    scenarios = tuple(variant.scenario for variant in all_variants)
    late = dict.fromkeys(text for one in scenarios for text in late_events(one))
    warnings = (*(text + _only_at(labels, len(points)) for text, labels in doubts.items()), *late)
    return Plan(scenario.name, tuple(points), tuple(cells), warnings, scenarios)


def with_methods_checked(plan: Plan) -> Plan:
    """The plan with what its methods say about their gossip graphs. ScenarioError where a method does not exist or
    cannot run there. Apart from `plan` because it imports torch."""
    from testbed.methods import make

    said: dict[str, None] = {}
    for index, scenario in enumerate(plan.variants):
        gossip = plan.points[next(cell.point for cell in plan.cells if cell.variant == index)].gossip
        for number, choice in enumerate(scenario.methods):
            try:
                method = make({choice.name: dict(choice.options)}, scenario.resolve("."))
                warnings = method.check(gossip)
                if scenario.on_failure == "continue" and not method.survives:
                    warnings = [*warnings, "it cannot go on without a worker: its cells end when one dies"]
                elif scenario.on_failure == "continue" and not method.rejoins and _restarts(scenario):
                    warnings = [*warnings, "it cannot take a worker back: those that die stay dead"]
                said |= dict.fromkeys(f"{choice.label}: {warning}" for warning in warnings)
            except ScenarioError as error:
                where = scenario.where(f"methods.{number}")
                raise ScenarioError(f"{where}: {error}", hint=error.hint) from error
            except Exception as error:
                where = scenario.where(f"methods.{number}")
                words = f"{where}: {choice.label} does not work: {type(error).__name__}: {error}"
                raise ScenarioError(words, hint=f"it happened in {_place_of(error, scenario.resolve('.'))}") from error
    return replace(plan, warnings=(*plan.warnings, *said))


def _place_of(error: Exception, directory: pathlib.Path) -> str:
    """file:line, of code beside the scenario if it was on the way: that is the user's own."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if pathlib.Path(frame.filename).parent == directory.resolve()]
    return f"{(own or frames)[-1].filename}:{(own or frames)[-1].lineno}"


def _restarts(scenario: Scenario) -> bool:
    return any(event.restarts for event in scenario.network.events)


def _only_at(labels: Sequence[str], points: int) -> str:
    if len(labels) == points:
        return ""
    return f" (at {labels[0]})" if len(labels) == 1 else f" (at {len(labels)} of {points} points, first {labels[0]})"


def _point(variant: Variant, base: Scenario, cores: int, supply: Supply | None) -> tuple[Point, list[str]]:
    from testbed.network import traces
    from testbed.patience import trace_files
    from testbed.topology.advice import advice
    from testbed.topology.build import gossip_graph, network_topology
    from testbed.topology.shapes import check_events, event_warnings
    from testbed.topology.wiring import network_plan

    topology = network_topology(variant.scenario)
    check_events(variant.scenario, topology)
    network, detours = network_plan(variant.scenario, topology)
    for file in trace_files(variant.scenario, network):
        traces.read(file)  # what is wrong in it is said now, not in the middle of a run
    gossip, notes = gossip_graph(variant.scenario, topology)
    found = advice(base, variant.scenario, topology, network, detours, cores)
    warnings = [*topology.warnings, *notes, *event_warnings(variant.scenario), *found]
    assigned, remarks = _gpus(variant.scenario, [worker.name for worker in network.workers], supply)
    return Point(0, variant.label, network, gossip, assigned), [*warnings, *remarks]


def _gpus(scenario: Scenario, names: Sequence[str], supply: Supply | None) -> tuple[Assigned, list[str]]:
    """Who gets which, with what is to be said about it."""
    if supply is None:
        return {}, []
    from testbed.runtime.gpus import advice, assign

    try:
        assigned = assign(scenario.workers.gpus, names, supply)
    except ScenarioError as error:
        where = scenario.where("workers.gpus")
        raise ScenarioError(f"{where}: workers.gpus: {error}", hint=error.hint) from error
    return assigned, advice(scenario, assigned, supply)


def _same(a: Point, b: Point) -> bool:
    """Whether a sweep over something else came back to the same network and gossip graph."""
    mixing = (a.gossip.matrices, b.gossip.matrices)
    return (
        a.network == b.network
        and a.gpus == b.gpus
        and len(mixing[0]) == len(mixing[1])
        and all((one == other).all() for one, other in zip(*mixing, strict=True))
    )


def _cells(index: int, variant: Variant, point: int) -> list[Cell]:
    """Methods take turns within a repeat, so that a machine that slows down meanwhile slows them all."""
    names = _distinct([_slug(method.label) for method in variant.scenario.methods])
    return [
        Cell(
            id=f"v{index}-{name}-r{repeat}",
            label=" / ".join(filter(None, [method.label, variant.label, f"repeat {repeat}" if repeat else ""])),
            point=point,
            variant=index,
            method=method.name,
            options=method.options,
            repeat=repeat,
            seed=seed,
            setting=variant.label,
        )
        for repeat, seed in enumerate(variant.scenario.seeds)
        for name, method in zip(names, variant.scenario.methods, strict=True)
    ]


def _slug(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-")[:48].rstrip("-")


def _distinct(names: Sequence[str]) -> list[str]:
    """Names that were cut to the same beginning get their number."""
    return [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names)]
