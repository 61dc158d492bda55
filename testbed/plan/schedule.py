"""A scenario's events and traces as timed changes that the network daemon makes. Pure.

Every direction of a link is a stack of layers: the scenario's settings, the trace that drives it, then the events in
order. An event that ends is removed from the stack, so the link becomes what it would be without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from testbed.link.shape import Shape
from testbed.plan import traces
from testbed.plan.changes import Change
from testbed.plan.model import LinkPlan, NetworkPlan, TraceFile
from testbed.plan.timeline import Action, at_times
from testbed.plan.traces import Sample, Trace
from testbed.scenario.events import Step
from testbed.scenario.verbs import VERBS

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario

HORIZON = 3600.0  # seconds; what repeats for ever is spelt out for so long after all else
MOST = 100_000  # changes, and moments at which something could change, likewise
Ends = tuple[str, str]  # from, to


@dataclass(frozen=True)
class Planned:
    """The changes and their times."""

    changes: list[Change]
    cut: float | None  # seconds; where something goes on for ever, it ends here


def of_scenario(scenario: Scenario, plan: NetworkPlan) -> Planned:
    """Return the changes from the scenario's timed events and traces."""
    events = [event for event in scenario.network.events if not isinstance(event.at, Step)]
    named = [max(float(event.at), event.until or 0.0) + (event.lasting or 0.0) for event in events]
    actions = at_times(events, [w.name for w in plan.workers], [(link.a, link.b) for link in plan.links])
    return changes(actions, plan, HORIZON + max(named, default=0.0), resolve=lambda file: str(scenario.resolve(file)))


def changes(
    actions: Iterable[Action],
    plan: NetworkPlan,
    horizon: float = HORIZON,
    read: Callable[[TraceFile], Trace] = traces.read,
    resolve: Callable[[str], str] = str,
) -> Planned:
    """Return the changes from actions in order of time and from the plan's traces, since they begin. `resolve` finds
    the files that actions name. Actions on workers are left out."""
    schedule = _Schedule(plan, read, resolve)
    found = list(schedule.run(actions, horizon))
    return Planned(found, schedule.cut)


def resumed(planned: Iterable[Change], elapsed: float) -> Iterator[Change]:
    """Yield the same changes for a later start: one that sums up the past of each link, then the rest."""
    past: dict[str, dict[str, Any]] = {}
    rest = iter(planned)
    upcoming = next(rest, None)
    while upcoming and upcoming[0] <= elapsed:
        _, operation, arguments = upcoming
        known = past.setdefault(arguments.get("link", operation), arguments)
        past[arguments.get("link", operation)] = {
            key: {**known[key], **value} if key in ("ab", "ba") else value for key, value in arguments.items()
        }
        upcoming = next(rest, None)
    for arguments in past.values():
        yield elapsed, "set_link" if "link" in arguments else "set_partition", arguments
    if upcoming:
        yield upcoming
    yield from rest


@dataclass(eq=False)
class _Layer:
    """What one event or trace sets on a direction."""

    numbers: dict[str, Any] = field(default_factory=dict)
    hold: float = 0.0
    stays: bool = False  # an event without end


@dataclass
class _Way:
    """One direction of a link."""

    base: Shape
    layers: list[_Layer] = field(default_factory=list)

    def add(self, layer: _Layer) -> None:
        if layer.stays:  # what it covers for ever is gone
            self.layers = [one for one in self.layers if not (one.stays and one.numbers.keys() <= layer.numbers.keys())]
        self.layers.append(layer)

    def remove(self, layer: _Layer) -> None:
        if layer in self.layers:
            self.layers.remove(layer)

    def shape(self) -> Shape:
        shape, hold = self.base, 0.0
        for layer in self.layers:
            shape = replace(shape, **layer.numbers)
            if "rate" in layer.numbers:  # the layer that sets the rate decides whether anything leaves at all
                hold = layer.hold
        return replace(shape, latency=shape.latency + hold)


class _Schedule:
    """The state of the network as time passes."""

    def __init__(self, plan: NetworkPlan, read: Callable[[TraceFile], Trace], resolve: Callable[[str], str]) -> None:
        self.cut: float | None = None  # where it was ended
        self._horizon = 0.0
        self._read, self._resolve = read, resolve
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._ways: dict[Ends, _Way] = {}
        self._links: dict[Ends, LinkPlan] = {}
        self._shown: dict[str, tuple[Shape, Shape]] = {}  # by link, as the last change left it
        self._touched: dict[str, LinkPlan] = {}
        self._partitions: list[tuple[dict[str, set[str]], bool]] = []  # and whether it stays
        self._blocked: dict[str, list[str]] = {}
        self._workers = [worker.name for worker in plan.workers]
        for link in plan.links:
            self._shown[link.name] = link.ab, link.ba
            for ends, shape, trace in (
                ((link.a, link.b), link.ab, link.trace_ab),
                ((link.b, link.a), link.ba, link.trace_ba),
            ):
                self._ways[ends], self._links[ends] = _Way(shape), link
                if trace:
                    self._lay(ends, 0.0, _Layer(), trace)

    def run(self, actions: Iterable[Action], horizon: float) -> Iterator[Change]:
        self._horizon = max(horizon, self._horizon)
        told = 0
        coming = iter(actions)
        upcoming = next(coming, None)
        while self._due or upcoming:
            now = min([due[0] for due in self._due[:1]] + [float(action.at) for action in [upcoming] if action])
            if now > self._horizon or told > MOST:
                yield from self._end(min(now, self._horizon))
                return
            # What ends at this moment ends before something else begins.
            while (self._due and self._due[0][0] <= now) or (upcoming and upcoming.at <= now):
                if self._due and self._due[0][0] <= now:
                    heappop(self._due)[2]()
                elif upcoming:
                    self._begin(upcoming, now)
                    upcoming = next(coming, None)
            found = self._differences(now)
            told += max(1, len(found))
            yield from found

    def _end(self, now: float) -> list[Change]:
        """Keep only what was meant to last: nothing may stay down for ever because the count has stopped."""
        self.cut = now
        for ends, way in self._ways.items():
            way.layers = [layer for layer in way.layers if layer.stays]
            self._touch(ends)
        self._partitions = [(partition, stays) for partition, stays in self._partitions if stays]
        return self._differences(now)

    def _at(self, moment: float, do: Callable[[], None]) -> None:
        heappush(self._due, (moment, next(self._order), do))

    def _begin(self, action: Action, now: float) -> None:
        target = VERBS[action.verb].target
        if target == "partitions":
            self._partitions.clear()
        elif target == "groups":
            self._part(action, now)
        elif target == "link":
            for ends in action.directions:
                trace = action.change.trace
                layer = _Layer(_numbers(action), stays=action.lasting is None and trace is None)
                self._lay(ends, now, layer, TraceFile(trace.kind, self._resolve(trace.file)) if trace else None)
                if action.lasting is not None:
                    self._at(now + action.lasting, partial(self._take_away, ends, layer))

    def _lay(self, ends: Ends, now: float, layer: _Layer, file: TraceFile | None) -> None:
        """Put a layer on the stack; its trace, if any, keeps changing it."""
        self._ways[ends].add(layer)
        self._touch(ends)
        if file:
            trace = self._read(file)
            if trace.period is None:  # to its end, however late that is
                self._horizon = max(self._horizon, now + trace.samples[-1].at)
            self._wait_for(iter(trace), ends, now, layer)

    def _wait_for(self, samples: Iterator[Sample], ends: Ends, start: float, layer: _Layer) -> None:
        def follow(sample: Sample) -> None:
            if layer not in self._ways[ends].layers:
                return
            layer.numbers |= sample.numbers
            layer.hold = sample.hold
            self._touch(ends)
            self._wait_for(samples, ends, start, layer)

        if (sample := next(samples, None)) is not None:
            self._at(start + sample.at, partial(follow, sample))

    def _take_away(self, ends: Ends, layer: _Layer) -> None:
        self._ways[ends].remove(layer)
        self._touch(ends)

    def _touch(self, ends: Ends) -> None:
        link = self._links[ends]
        self._touched[link.name] = link

    def _part(self, action: Action, now: float) -> None:
        partition = {
            name: {other for others in action.groups if others is not group for other in others}
            for group in action.groups
            for name in group
        }
        self._partitions.append((partition, action.lasting is None))
        if action.lasting is not None:
            self._at(now + action.lasting, lambda: self._heal(partition))

    def _heal(self, partition: dict[str, set[str]]) -> None:
        self._partitions = [one for one in self._partitions if one[0] is not partition]

    def _differences(self, now: float) -> list[Change]:
        """Return the changes from the last reported state to the current one."""
        found: list[Change] = []
        for link in self._touched.values():
            before = self._shown[link.name]
            after = self._ways[link.a, link.b].shape(), self._ways[link.b, link.a].shape()
            if before != after:
                ab, ba = (_changed(*pair) for pair in zip(before, after, strict=True))
                found.append((now, "set_link", {"link": link.name, "ab": ab, "ba": ba}))
                self._shown[link.name] = after
        self._touched.clear()
        blocked = {
            name: [one for one in self._workers if one in others]
            for name in self._workers
            if (others := set().union(*(partition.get(name, ()) for partition, _ in self._partitions)))
        }
        if blocked != self._blocked:
            self._blocked = blocked
            found.append((now, "set_partition", {"blocked": blocked}))
        return found


def _numbers(action: Action) -> dict[str, Any]:
    """Return what an action sets on a direction, as fields of its shape."""
    numbers = VERBS[action.verb].numbers
    return action.change.numbers() if numbers is None else dict(numbers)


def _changed(before: Shape, after: Shape) -> dict[str, Any]:
    names = [one.name for one in fields(Shape)]
    return {name: getattr(after, name) for name in names if getattr(before, name) != getattr(after, name)}
