"""What each link does: the scenario's default, the topology's own numbers, regions, overrides; later ones win."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testbed.link.shape import Shape
from testbed.plan.model import TraceFile
from testbed.scenario.events import Step
from testbed.topology.graph import Numbers, Topology, TopologyError, did_you_mean, listing, located, settings

if TYPE_CHECKING:
    from testbed.scenario.events import Event
    from testbed.scenario.model import Scenario


@dataclass
class Direction:
    """One direction of a link while its settings are collected."""

    shape: Shape
    trace: Any = None  # the scenario's Trace

    def lay_over(self, numbers: Numbers) -> None:
        if not numbers:
            return
        self.trace = numbers.get("trace", self.trace)
        self.shape = replace(self.shape, **{name: value for name, value in numbers.items() if name != "trace"})


Directions = Mapping[tuple[str, str], Direction]


def link_directions(scenario: Scenario, topology: Topology) -> Directions:
    """Return every direction (from, to) of every link. ScenarioError where the scenario names a missing one."""
    network = scenario.network
    base = settings(network.link)
    directions: dict[tuple[str, str], Direction] = {}
    for edge in topology.edges:
        for ends, own in (((edge.a, edge.b), edge.ab), ((edge.b, edge.a), edge.ba)):
            directions[ends] = Direction(Shape())
            for numbers in (base, own, settings(network.regional(*ends))):
                directions[ends].lay_over(numbers)
    for region, members in network.regions.items():
        with located(scenario.where(f"network.regions.{region}")):
            for name in members:
                topology.node(name)
    for number, override in enumerate(network.links):
        with located(scenario.where(f"network.links.{number}")):
            for source, target in override.directions:
                _find(directions, topology, source, target).lay_over(settings(override))
    return directions


def trace_file(scenario: Scenario, direction: Direction) -> TraceFile | None:
    """Return the recording that drives a direction, if there is one."""
    trace = direction.trace
    return None if trace is None else TraceFile(trace.kind, str(scenario.resolve(trace.file)))


def check_events(scenario: Scenario, topology: Topology) -> None:
    """Raise ScenarioError where an event names a node or a link that does not exist."""
    directions = {ends: Direction(Shape()) for edge in topology.edges for ends in ((edge.a, edge.b), (edge.b, edge.a))}
    for number, event in enumerate(scenario.network.events):
        with located(scenario.where(f"network.events.{number}")):
            _check_restart(event, scenario.network.events)
            for source, target in event.directions:
                _find(directions, topology, source, target)
            named = [*event.workers]
            named += [name for group in event.partition or () for name in group]
            named += (event.random.among if event.random else None) or ()
            for name in named:
                if topology.node(name) not in topology.workers:
                    raise TopologyError(f"{name} is a switch, not a worker")


def event_warnings(scenario: Scenario) -> list[str]:
    """Warn of events that cannot do what they seem to."""
    if scenario.on_failure == "continue" or not any(event.restarts for event in scenario.network.events):
        return []
    return ["workers are to start again after they died, but on_failure is stop: a cell ends when a worker dies"]


def late_events(scenario: Scenario) -> list[str]:
    """Warn of events at steps that training does not have."""
    steps = scenario.training.steps
    return [
        f"{scenario.where(f'network.events.{number}')}: {event.verb} at {event.at} never happens: "
        f"training has the steps 0 to {steps - 1}"
        for number, event in enumerate(scenario.network.events)
        if isinstance(event.at, Step) and event.at >= steps
    ]


def _check_restart(event: Event, events: Sequence[Event]) -> None:
    """Raise ScenarioError where a worker would start again that has not died before."""
    for name in event.restart or ():
        kills = [other for other in events if _kills(other, name)]
        if not kills:
            raise TopologyError(
                f"{name} cannot restart: nothing kills it", hint=f"add an event before, e.g. {{at: 10s, kill: {name}}}"
            )
        if all(isinstance(kill.at, Step) == isinstance(event.at, Step) and kill.at > event.at for kill in kills):
            raise TopologyError(f"{name} cannot restart at {event.at}: nothing kills it before")


def _kills(event: Event, name: str) -> bool:
    if event.random is not None:
        return event.random.kind == "kill" and (event.random.among is None or name in event.random.among)
    return event.kill is not None and name in event.kill


def _find(directions: Directions, topology: Topology, source: str, target: str) -> Direction:
    ends = topology.node(source), topology.node(target)
    if ends not in directions:
        near = [b for a, b in directions if a == ends[0]]
        raise TopologyError(
            f"there is no link between {source} and {target} in topology {topology.name}{did_you_mean(target, near)}",
            hint=f"{source} has links to {listing(near)}",
        )
    return directions[ends]
