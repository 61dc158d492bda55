"""The message timeout: how long a worker waits for one message. Long enough for the slowest step that the scenario can
cause, short enough that a frozen worker is noticed. Jobs carry it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from testbed.errors import ScenarioError
from testbed.link.shape import Shape
from testbed.plan import traces
from testbed.plan.floors import gossip_floor, ring_floor
from testbed.plan.model import LinkPlan, NetworkPlan, TraceFile
from testbed.plan.timeline import SLOW_FACTOR
from testbed.scenario.events import Event, Step
from testbed.scenario.verbs import VERBS
from testbed.topology.gossip import Gossip

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario

LEAST = 10.0  # seconds
STEPS = 20  # of the longest expected: cores are shared, queues fill, packets get lost
GRADIENT = 2.0  # seconds; that of a real one is unknown before it is computed
DRAWN = 64  # rounds to look at where the gossip graph is drawn anew in each
RECOVERY = 2.0  # TCP tries ever more rarely while nothing passes: it may notice the end of an outage that much later


def patience(scenario: Scenario, network: NetworkPlan, gossip: Gossip, model_bytes: int) -> float:
    """Return the seconds; the scenario's own setting, if it has one."""
    if scenario.patience is not None:
        return float(scenario.patience)
    usual = max(LEAST, STEPS * longest_step(scenario, network, gossip, model_bytes))
    return min(float(scenario.deadline), usual + RECOVERY * longest_outage(scenario, network))


def longest_step(scenario: Scenario, network: NetworkPlan, gossip: Gossip, model_bytes: int) -> float:
    """Return the seconds of one gradient and one uncompressed exchange, with every link and worker at its worst."""
    events = scenario.network.events
    given = scenario.compute.step_time or scenario.compute.emulated
    gradient = GRADIENT if given is None else float(given)
    slow = max((_slow_factor(event) for event in events), default=1.0)
    worst = replace(network, links=tuple(_at_worst(link, scenario) for link in network.links))
    n = gossip.size
    exchanges = [
        gossip_floor(worst, {(j, i): float(model_bytes) for i in range(n) for j in gossip.sources(step, i)}, rounds=2)
        for step in range(len(gossip.matrices) if gossip.drawn is None else DRAWN)
    ]
    return slow * gradient + max([ring_floor(worst, model_bytes), *exchanges])


def longest_outage(scenario: Scenario, network: NetworkPlan) -> float:
    """Return the seconds for which nothing passes some link, as far as the scenario says how long: a link that stays
    down is one to give up on."""
    events = scenario.network.events
    held = [sample.hold for file in trace_files(scenario, network) for sample in traces.read(file).samples]
    return max([*held, *(_outage(event, events) for event in events)], default=0.0)


def model_bytes(task: Any) -> int:
    """Return the size of the uncompressed model that a scenario's task trains."""
    return _model_bytes(json.dumps(task))


@cache
def _model_bytes(task: str) -> int:
    import torch

    from testbed.tasks.consensus import Consensus
    from testbed.tasks.no_data import build
    from testbed.tasks.quadratic import Quadratic
    from testbed.tasks.spec import resolve

    spec = resolve(json.loads(task))
    if isinstance(spec.model, Quadratic | Consensus):
        return 4 * prod(spec.model.shape)
    try:
        with torch.device("meta"):  # shapes alone
            return 4 * sum(parameter.numel() for parameter in build(spec).parameters())
    except RuntimeError as error:
        raise ScenarioError(f"the model cannot be built: {str(error).splitlines()[0]}") from error


def _outage(event: Event, events: Sequence[Event]) -> float:
    if event.random is not None:
        verb = VERBS[event.random.kind]
        return float(event.random.lasting or verb.drawn_for or 0.0) if verb.target == "link" else 0.0
    if event.verb not in ("down", "flap", "partition"):
        return 0.0
    if lasting := event.lasting or VERBS[event.verb].usually_for:
        return float(lasting)
    ends = [float(other.at) for other in events if _ends(event, other) and not isinstance(other.at, Step)]
    later = [end for end in ends if not isinstance(event.at, Step) and end > event.at]
    return min(later) - float(event.at) if later else 0.0


def _ends(event: Event, other: Event) -> bool:
    if event.verb == "partition":
        return other.verb == "heal"
    return other.up is not None and set(other.up) == set(event.down or ())


def _slow_factor(event: Event) -> float:
    if event.random is not None:
        return float(event.random.factor or SLOW_FACTOR) if event.random.kind == "slow" else 1.0
    return float(event.factor or SLOW_FACTOR) if event.verb == "slow" else 1.0


def _at_worst(link: LinkPlan, scenario: Scenario) -> LinkPlan:
    return replace(
        link,
        ab=_worst([link.ab, *_later_shapes((link.a, link.b), link.ab, link.trace_ab, scenario)]),
        ba=_worst([link.ba, *_later_shapes((link.b, link.a), link.ba, link.trace_ba, scenario)]),
    )


def _later_shapes(ends: tuple[str, str], now: Shape, trace: TraceFile | None, scenario: Scenario) -> Iterator[Shape]:
    """Yield what events and traces make of one direction, each by itself."""
    files = [trace] if trace else []
    for event in scenario.network.events:
        if event.verb == "link" and ends in event.directions:
            yield event.on(now)
            if event.trace:
                files.append(TraceFile(event.trace.kind, str(scenario.resolve(event.trace.file))))
    for file in files:
        yield from (replace(now, **sample.numbers) for sample in traces.read(file).samples)


def _worst(shapes: Sequence[Shape]) -> Shape:
    rates = [shape.rate for shape in shapes if shape.rate is not None]
    return replace(shapes[0], latency=max(shape.latency for shape in shapes), rate=min(rates, default=None))


def trace_files(scenario: Scenario, network: NetworkPlan) -> list[TraceFile]:
    """Return all recordings that drive links."""
    of_links = [file for link in network.links for file in (link.trace_ab, link.trace_ba) if file]
    of_events = [event.trace for event in scenario.network.events if event.trace]
    return [*of_links, *(TraceFile(one.kind, str(scenario.resolve(one.file))) for one in of_events)]
