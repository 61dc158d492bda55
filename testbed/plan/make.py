"""Scenario → Plan by pure functions. `testbed plan` prints the result, `testbed up` runs it."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Sequence
from dataclasses import replace
from traceback import extract_tb
from typing import TYPE_CHECKING

from testbed.errors import ScenarioError
from testbed.plan.model import Cell, Plan, Point

if TYPE_CHECKING:
    from testbed.plan.gpus import Assigned, Supply
    from testbed.scenario.model import Scenario
    from testbed.scenario.sweep import Variant


def plan(scenario: Scenario, cores: int | None = None, gpus: Supply | None = None) -> Plan:
    """Return what `testbed up` would do with this scenario on a machine with that many cores (default: this one) and
    these GPUs (default: not looked for, and all train on processors)."""
    from testbed.plan.shapes import late_events
    from testbed.scenario.sweep import variants

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
    """Return the plan with the methods' warnings about their gossip graphs. ScenarioError where a method does not exist
    or cannot run there. Apart from `plan` because it imports torch."""
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
    """Return file:line, of code beside the scenario if it was on the way: that is the user's own."""
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
    from testbed.plan import slow_motion, traces
    from testbed.plan.advice import advice
    from testbed.plan.shapes import check_events, event_warnings
    from testbed.plan.timeouts import trace_files
    from testbed.plan.wiring import network_plan
    from testbed.topology.build import gossip_graph, network_topology

    topology = network_topology(variant.scenario)
    check_events(variant.scenario, topology)
    network, detours = network_plan(variant.scenario, topology)
    for file in trace_files(variant.scenario, network):
        traces.read(file)  # what is wrong in it is said now, not in the middle of a run
    slow_motion.check(variant.scenario, network)
    gossip, notes = gossip_graph(variant.scenario, topology)
    found = advice(base, variant.scenario, topology, network, detours, cores)
    warnings = [*topology.warnings, *notes, *event_warnings(variant.scenario), *found]
    assigned, remarks = _gpus(variant.scenario, [worker.name for worker in network.workers], supply)
    return Point(0, variant.label, network, gossip, assigned), [*warnings, *remarks]


def _gpus(scenario: Scenario, names: Sequence[str], supply: Supply | None) -> tuple[Assigned, list[str]]:
    """Return which worker gets which GPU, with notes."""
    if supply is None:
        return {}, []
    from testbed.plan.gpus import advice, assign

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
    """Order the cells: methods take turns within a repeat, so that a machine that slows down slows them all."""
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
    """Number the names that were cut to the same beginning."""
    return [name if names.count(name) == 1 else f"{name}-{number}" for number, name in enumerate(names)]
