"""Checks across keys: names that must exist, counts that must agree. Loading runs it after the models.

Names of nodes that only a topology's file knows are checked by the plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import isfile  # unlike Path.is_file it never raises

from testbed.scenario.base import suggestion
from testbed.scenario.graphs import WORKER
from testbed.scenario.links import LinkOptions
from testbed.scenario.model import MOST_WORKERS, Scenario
from testbed.scenario.network import Network, RegionMatrix
from testbed.scenario.problems import Problem
from testbed.scenario.source import Keys
from testbed.scenario.units import shown
from testbed.scenario.verbs import ON_LINKS, ON_WORKERS

_UNSWEEPABLE = ("sweep", "name", "repeat", "box", "runtime")


def check(scenario: Scenario) -> list[Problem]:
    """Return all problems between keys."""
    return [
        *_workers(scenario),
        *_names(scenario),
        *_regions(scenario.network),
        *_weights(scenario),
        *_methods(scenario),
        *_consensus(scenario),
        *_traces(scenario),
        *_checkpoints(scenario),
        *_sweep(scenario),
    ]


def _workers(scenario: Scenario) -> Iterator[Problem]:
    topology = scenario.network.graph
    if scenario.worker_count is None and topology.builtin:
        yield Problem((), "workers is missing: how many workers, for example workers: 8")
    if scenario.worker_count == 0:
        yield Problem(("network", "topology", "links"), "no workers among the nodes: call them w0, w1, …")
    if (scenario.worker_count or 0) > MOST_WORKERS:
        yield Problem(("network", "topology"), f"makes {scenario.worker_count} workers; at most {MOST_WORKERS}")


def _names(scenario: Scenario) -> Iterator[Problem]:
    """Yield names w<i> beyond the number of workers, and events for workers that do not exist."""
    topology, count = scenario.network.graph, scenario.worker_count
    if count is None or not topology.builtin:
        return
    workers = {f"w{rank}" for rank in range(count)}
    every = f"the workers are w0 to w{count - 1}"
    for keys, name in _nodes(scenario):
        if WORKER.fullmatch(name) and name not in workers:
            yield Problem(keys, f"there is no {name}; {every}")
    for keys, name in _worker_names(scenario):
        if not WORKER.fullmatch(name):
            yield Problem(keys, f"unknown worker {shown(name)}; {every}{suggestion(name, sorted(workers))}")


def _nodes(scenario: Scenario) -> Iterator[tuple[Keys, str]]:
    """Yield every place that names a node."""
    network = scenario.network
    for number, link in enumerate(network.links):
        at: Keys = ("network", "links", number)
        yield from (((*at, "between", end), name) for end, name in enumerate(link.between or ()))
        yield from (((*at, key), name) for key, name in (("from", link.source), ("to", link.target)) if name)
    for region, members in network.regions.items():
        yield from ((("network", "regions", region, place), name) for place, name in enumerate(members))
    for number, event in enumerate(network.events):
        at = ("network", "events", number)
        for key in ON_LINKS:
            yield from (((*at, key, end), name) for end, name in enumerate(getattr(event, key) or ()))
        yield from (((*at, key), name) for key, name in (("from", event.source), ("to", event.target)) if name)
    yield from _worker_names(scenario)


def _worker_names(scenario: Scenario) -> Iterator[tuple[Keys, str]]:
    """Yield every place that names a worker, where a switch would make no sense."""
    for number, event in enumerate(scenario.network.events):
        at: Keys = ("network", "events", number)
        for key in ON_WORKERS:
            yield from (((*at, key, place), name) for place, name in enumerate(getattr(event, key) or ()))
        for group, members in enumerate(event.partition or ()):
            yield from (((*at, "partition", group, place), name) for place, name in enumerate(members))
        if event.random:
            yield from (((*at, "random", "among", place), name) for place, name in enumerate(event.random.among or ()))
    for key in ("gpus", "cpus"):
        limits = getattr(scenario.workers, key)
        if isinstance(limits, dict):
            yield from ((("workers", key, name), name) for name in limits)


def _regions(network: Network) -> Iterator[Problem]:
    known = list(network.regions)
    if not known:
        for key in ("within", "between"):
            if getattr(network, key):
                yield Problem(("network", key), "needs regions: which workers are where, e.g. regions: {eu: [w0, w1]}")
        return
    home: dict[str, str] = {}
    for region, members in network.regions.items():
        for place, name in enumerate(members):
            if name in home:
                there = "twice" if home[name] == region else f"in {home[name]} too"
                yield Problem(("network", "regions", region, place), f"{name} is {there}; it can be in one region only")
            home.setdefault(name, region)
    for keys, name in _region_names(network):
        if name not in known:
            message = f"unknown region {shown(name)}; the regions are {', '.join(known)}{suggestion(name, known)}"
            yield Problem(("network", "between", *keys), message)


def _region_names(network: Network) -> Iterator[tuple[Keys, str]]:
    if isinstance(network.between, RegionMatrix):
        for setting in RegionMatrix.settings:
            matrix = getattr(network.between, setting)
            for source, row in matrix.items() if isinstance(matrix, dict) else ():
                yield (setting, source), source
                yield from (((setting, source, target), target) for target in row)
        return
    for number, pair in enumerate(network.between or ()):
        yield from (((number, "regions", end), name) for end, name in enumerate(pair.regions))


def _weights(scenario: Scenario) -> Iterator[Problem]:
    weights, count = scenario.gossip.weights, scenario.worker_count
    if not isinstance(weights, str) and count is not None and len(weights) != count:
        yield Problem(("gossip", "weights"), f"a matrix of {len(weights)} rows for {count} workers")


def _methods(scenario: Scenario) -> Iterator[Problem]:
    for number, method in enumerate(scenario.methods):
        first = scenario.methods.index(method)
        if first < number:
            yield Problem(("methods", number), f"{method.name} is listed twice with the same options")


def _consensus(scenario: Scenario) -> Iterator[Problem]:
    """Check gossip alone: one step to each worker's own matrix, after which nothing may move the workers."""
    model, training = scenario.task.model, scenario.training
    if model is None or model.name != "consensus":
        return
    wanted = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "warmup": 0}
    for key, value in wanted.items():
        if getattr(training, key) != value:
            yield Problem(("training", key), f"the consensus task needs {key}: {value:g}")


def _checkpoints(scenario: Scenario) -> Iterator[Problem]:
    """Refuse checkpoints where events or lost workers matter: these are not part of a worker's state."""
    if scenario.training.checkpoint_every is None:
        return
    others = {
        "network.events": bool(scenario.network.events),
        "a link's trace": any(options and options.trace for _, options in _link_options(scenario.network)),
        "on_failure: continue": scenario.on_failure == "continue",
    }
    if found := [what for what, there in others.items() if there]:
        words = f"cannot be had together with {' and '.join(found)}: a cell could not go on as if not interrupted"
        yield Problem(("training", "checkpoint_every"), words)


def _link_options(network: Network) -> list[tuple[Keys, LinkOptions | None]]:
    """Return every place that says what links do."""
    places: list[tuple[Keys, LinkOptions | None]] = [
        (("network", "link"), network.link),
        (("network", "within"), network.within),
        *((("network", "links", number), link) for number, link in enumerate(network.links)),
        *((("network", "events", number), event) for number, event in enumerate(network.events)),
    ]
    if not isinstance(network.between, RegionMatrix):
        places += ((("network", "between", number), pair) for number, pair in enumerate(network.between or ()))
    return places


def _traces(scenario: Scenario) -> Iterator[Problem]:
    for keys, options in _link_options(scenario.network):
        if options and options.trace and not isfile(scenario.resolve(options.trace.file)):
            yield Problem((*keys, "trace"), f"no such file: {scenario.resolve(options.trace.file)}")


def _sweep(scenario: Scenario) -> Iterator[Problem]:
    for key, values in scenario.sweep.items():
        if key.split(".")[0] in _UNSWEEPABLE:
            yield Problem(("sweep", key), f"{key} cannot be swept")
        elif not values:
            yield Problem(("sweep", key), "has no values; give a list, for example [5ms, 25ms]")
        elif len({repr(value) for value in values}) < len(values):
            yield Problem(("sweep", key), "lists a value twice")
