"""A injector's surroundings, for test_director.py: a clock, workers and a network that only take notes."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from testbed.plan.make import plan
from testbed.plan.model import NetworkPlan
from testbed.run import faults
from testbed.run.faults import FaultInjector
from testbed.run.rejoin_coordinator import Rejoin
from testbed.scenario.load import loads
from testbed.worker.progress import Where

SCENARIO = """
workers: 4
network:
  topology: ring
  link: {{latency: 5ms, rate: 100mbit}}
  events: {events}
training: {{steps: 100}}
methods: [dpsgd]
deadline: 100s
"""


class Clock:
    """Stands still unless told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Network:
    """A daemon that makes changes exactly when they are due."""

    def __init__(self, clock: Clock, network: NetworkPlan) -> None:
        self.clock, self.slow_motion = clock, network.slow_motion
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.links = {link.name: [asdict(link.ab), asdict(link.ba)] for link in network.links}
        self.partition: dict[str, list[str]] = {}
        self.changes: list[Any] = []
        self.done: list[Any] = []
        self.zero = 0.0

    def call(self, op: str, **arguments: Any) -> Any:
        self.calls.append((op, arguments))
        return getattr(self, op)(**arguments)

    def start_events(self, changes: list[Any]) -> None:
        self.zero = self.clock.now
        self.changes = list(changes)

    def update_events(self, changes: list[Any]) -> None:
        self.changes = list(changes)

    def stop_events(self) -> list[Any]:
        self.pass_time()
        self.changes = []
        return self.done

    def pass_time(self) -> None:
        while self.changes and self.changes[0][0] <= (self.clock.now - self.zero) / self.slow_motion:
            at, operation, arguments = self.changes.pop(0)
            getattr(self, operation)(**arguments)
            self.done.append([at, 0.001, arguments.get("link", operation), ""])

    def status(self) -> dict[str, Any]:
        return {"links": self.links, "partition": self.partition}

    def set_link(self, link: str, ab: dict[str, Any], ba: dict[str, Any]) -> None:
        self.links[link] = [{**self.links[link][0], **ab}, {**self.links[link][1], **ba}]

    def set_partition(self, blocked: dict[str, list[str]]) -> None:
        self.partition = blocked


class Workers:
    def __init__(self) -> None:
        self.signals: list[tuple[str, int]] = []

    def kill(self, rank: int) -> None:
        self.signals.append(("kill", rank))

    def freeze(self, rank: int, frozen: bool) -> None:
        self.signals.append(("freeze" if frozen else "thaw", rank))


class Board:
    def __init__(self, size: int) -> None:
        self.steps = [-1] * size
        self.start_ns = 0
        self.slow = [1.0] * size

    def all(self) -> list[Where]:
        return [Where(step, self.start_ns, 0, 0.0, 0.0) for step in self.steps]

    def set_slow(self, rank: int, factor: float) -> None:
        self.slow[rank] = factor


class Stage:
    """A injector and everything around it."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        events: str,
        *,
        tolerant: bool = False,
        rejoins: Any = None,
        slow_motion: float = 1.0,
    ) -> None:
        self.clock = Clock()
        monkeypatch.setattr(faults.time, "monotonic", self.clock.monotonic)
        scenario = loads(SCENARIO.format(events=events), "scenario.yaml")
        self.plan = replace(plan(scenario).network, slow_motion=slow_motion)
        self.network, self.workers, self.board = Network(self.clock, self.plan), Workers(), Board(4)
        self.injector = FaultInjector(
            scenario,
            self.plan,
            self.network,
            self.workers,
            self.board,
            patience=10.0,
            tolerant=tolerant,
            rejoins=rejoins,
        )

    def begin(self, in_seconds: float = 0.0) -> None:
        self.board.start_ns = round((self.clock.now + in_seconds) * 1e9)
        self.start = self.clock.now + in_seconds
        self.board.steps = [0, 0, 0, 0]
        self.injector.follow()

    def go_to(self, seconds: float, step: int | None = None) -> None:
        """As the controller does: ask when the injector wants to be asked."""
        if step is not None:
            self.board.steps = [step] * 4
        while True:
            pause = self.injector.follow()
            left = self.start + seconds - self.clock.now
            if left <= 0:
                return
            self.clock.now += max(1e-6, min(pause, left))
            self.network.pass_time()

    def told(self) -> list[tuple[str, float | str, float]]:
        return [(f"{row.subject} {row.what}", row.due, row.at) for row in self.injector.record]


class Returns:
    """Whoever is started again is back when the test says so."""

    def __init__(self) -> None:
        self.done: list[Rejoin] = []
        self.lost: frozenset[int] = frozenset()
        self.started: list[int] = []
        self.back: list[int] = []
        self.waiting: list[int] = []

    @property
    def pending(self) -> bool:
        return bool(self.waiting)

    def life(self, rank: int) -> int:
        return self.started.count(rank)

    def request(self, rank: int) -> None:
        self.started.append(rank)
        self.waiting.append(rank)

    def waits(self, rank: int) -> bool:
        return rank in self.waiting

    def follow(self) -> None:
        for rank in [rank for rank in self.waiting if rank in self.back]:
            self.waiting.remove(rank)
            self.done.append(Rejoin(rank, self.life(rank), 40, 0, 1000, 0.0))

    def close(self) -> None:
        """Nobody waits any more."""
