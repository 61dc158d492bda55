"""The director's schedule, with a clock, workers and a network that only take notes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from testbed import faults
from testbed.faults import MOST, NEVER, Director
from testbed.plan import NetworkPlan, plan
from testbed.rejoins import Rejoin
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
    """A keeper that makes changes exactly when they are due."""

    def __init__(self, clock: Clock, network: NetworkPlan) -> None:
        self.clock = clock
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
        while self.changes and self.changes[0][0] <= self.clock.now - self.zero:
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
    """A director and everything around it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, events: str, *, tolerant: bool = False, rejoins: Any = None
    ) -> None:
        self.clock = Clock()
        monkeypatch.setattr(faults.time, "monotonic", self.clock.monotonic)
        scenario = loads(SCENARIO.format(events=events), "scenario.yaml")
        self.plan = plan(scenario).network
        self.network, self.workers, self.board = Network(self.clock, self.plan), Workers(), Board(4)
        self.director = Director(
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
        self.director.follow()

    def go_to(self, seconds: float, step: int | None = None) -> None:
        """As the controller does: ask when the director wants to be asked."""
        if step is not None:
            self.board.steps = [step] * 4
        while True:
            pause = self.director.follow()
            left = self.start + seconds - self.clock.now
            if left <= 0:
                return
            self.clock.now += max(1e-6, min(pause, left))
            self.network.pass_time()

    def told(self) -> list[tuple[str, float | str, float]]:
        return [(f"{row['subject']} {row['what']}", row["due"], row["at"]) for row in self.director.record]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch):
    return lambda events, **options: Stage(monkeypatch, events, **options)


def test_without_events_there_is_nothing_to_do(stage):
    s = stage("[]")
    s.begin()
    assert s.director.follow() == NEVER
    s.director.close()
    assert s.network.calls == []
    assert s.director.record == []


def test_nothing_happens_before_training_begins(stage):
    s = stage("[{at: 0s, kill: w1}]")
    s.clock.now += 50
    assert s.director.follow() < 0.1
    assert s.workers.signals == []
    s.begin(in_seconds=0.05)  # workers announce a start that all of them can keep
    assert s.workers.signals == []
    s.go_to(0.0)
    assert s.workers.signals == [("kill", 1)]


def test_workers_are_killed_frozen_and_slowed_in_time(stage):
    s = stage("[{at: 2s, freeze: [w0, w3], for: 1500ms}, {at: 1s, slow: w1, factor: 3, for: 5s}, {at: 4s, kill: w2}]")
    s.begin()
    s.go_to(0.9)
    assert (s.workers.signals, s.board.slow) == ([], [1, 1, 1, 1])
    s.go_to(3.0)
    assert (s.workers.signals, s.board.slow) == ([("freeze", 0), ("freeze", 3)], [1, 3, 1, 1])
    s.go_to(7.0)
    assert s.workers.signals[2:] == [("thaw", 0), ("thaw", 3), ("kill", 2)]
    assert s.board.slow == [1, 1, 1, 1]
    assert [(what, due) for what, due, _ in s.told()] == [
        ("w1 3 times slower", 1),
        ("w0 frozen for 1.5s", 2),
        ("w3 frozen for 1.5s", 2),
        ("w0 goes on", pytest.approx(3.5, abs=1e-3)),
        ("w3 goes on", pytest.approx(3.5, abs=1e-3)),
        ("w2 killed", 4),
        ("w1 no longer 3 times slower", pytest.approx(6, abs=1e-3)),
    ]
    assert all(at == pytest.approx(due, abs=1e-3) for _, due, at in s.told())


def test_steps_trigger_when_the_first_worker_begins_them(stage):
    s = stage("[{at: step 50, kill: w3}, {at: step 20, slow: w0}]")
    s.begin()
    s.board.steps = [3, 19, 4, 5]
    s.go_to(1.0)
    assert s.told() == []
    s.board.steps = [3, 20, 4, 5]
    s.go_to(1.5)
    assert [(what, due) for what, due, _ in s.told()] == [("w0 2 times slower", "step 20")]
    s.go_to(2.0, step=60)
    assert s.workers.signals == [("kill", 3)]


def test_overlapping_freezes_and_slowings_end_when_the_last_one_does(stage):
    s = stage(
        "[{at: 1s, freeze: w0, for: 3s}, {at: 2s, freeze: w0, for: 4s}, "
        "{at: 1s, slow: w1, factor: 5, for: 1s}, {at: 1500ms, slow: w1, factor: 2}]"
    )
    s.begin()
    s.go_to(5.0)
    assert ("thaw", 0) not in s.workers.signals
    assert s.board.slow[1] == 2
    s.go_to(7.0)
    assert s.workers.signals[-1] == ("thaw", 0)


def test_the_dead_are_not_killed_again(stage):
    s = stage("[{at: 1s, kill: w0}, {at: 2s, kill: w0}, {at: 3s, freeze: w0, for: 1s}]")
    s.begin()
    s.go_to(5.0)
    assert s.workers.signals == [("kill", 0)]
    assert [row["problem"] for row in s.director.record] == ["", "it was dead already", "it is dead"]


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


def test_the_killed_start_again_when_they_shall(stage):
    returns = Returns()
    events = "[{at: 1s, kill: w2, for: 3s}, {at: 2s, kill: w1}, {at: 5s, restart: w1}, {at: 6500ms, restart: w1}]"
    s = stage(events, rejoins=returns)
    s.begin()
    s.go_to(4.5)
    assert (returns.started, s.workers.signals) == ([2], [("kill", 2), ("kill", 1)])
    s.go_to(6.0)
    returns.back = [1, 2]
    s.go_to(7.0)
    assert returns.started == [2, 1]
    told = [(f"{row['subject']} {row['what']}", row["problem"]) for row in s.director.record]
    assert told[-1] == ("w1 restarted", "it is alive")
    assert {("w2 rejoined in step 40", ""), ("w1 rejoined in step 40", "")} <= set(told)


def test_who_is_back_can_be_killed_again_and_who_is_on_the_way_too(stage):
    returns = Returns()
    events = "[{at: 1s, kill: w2, for: 1s}, {at: 4s, kill: w2}, {at: 5s, kill: w2}, {at: 6s, kill: w1, for: 1s}, "
    s = stage(events + "{at: 8s, kill: w1}]", rejoins=returns)
    s.begin()
    s.go_to(3.0)
    returns.back = [2]
    s.go_to(9.0)
    assert s.workers.signals == [("kill", 2), ("kill", 2), ("kill", 1), ("kill", 1)]
    assert set(s.director.killed) == {(2, 0), (2, 1), (1, 0), (1, 1)}
    assert [row["problem"] for row in s.director.record if row["problem"]] == ["it was dead already"]


def test_random_kills_with_an_end_are_restarts(stage):
    returns = Returns()
    s = stage("[{random: {kind: kill, every: 20s, for: 2s, seed: 3, among: [w1]}, until: 60s}]", rejoins=returns)
    returns.back = [1]
    s.begin()
    s.go_to(70.0)
    kills = [at for what, _, at in s.told() if what == "w1 killed"]
    assert len(kills) == len(returns.started) > 1
    assert [at for what, _, at in s.told() if what == "w1 restarted"] == pytest.approx([at + 2 for at in kills])


def test_where_nobody_can_come_back_it_is_said(stage):
    s = stage("[{at: 1s, kill: w2, for: 1s}]")
    s.begin()
    s.go_to(3.0)
    assert [row["problem"] for row in s.director.record] == ["", "the method cannot take a worker back"]


def test_links_change_at_their_time_and_are_as_planned_afterwards(stage):
    s = stage("[{at: 1s, link: [w0, w1], rate: 5mbit, latency: 50ms}, {at: 2s, down: [w1, w2], for: 3s}]")
    before = {name: [dict(ab), dict(ba)] for name, (ab, ba) in s.network.links.items()}
    s.begin(in_seconds=0.04)
    s.go_to(2.5)
    assert s.network.links["w0-w1"][0]["rate"] == s.network.links["w0-w1"][1]["rate"] == 5_000_000
    assert not s.network.links["w1-w2"][0]["up"]
    s.director.close()
    assert s.network.links == before
    assert [(what, due) for what, due, _ in s.told()] == [("w0-w1 latency=50ms rate=5mbit", 1), ("w1-w2 down", 2)]


def test_a_partition_ends_with_the_cell(stage):
    s = stage("[{at: 1s, partition: [[w0, w1], [w2, w3]]}]")
    s.begin()
    s.go_to(2.0)
    assert s.network.partition == {"w0": ["w2", "w3"], "w1": ["w2", "w3"], "w2": ["w0", "w1"], "w3": ["w0", "w1"]}
    s.director.close()
    assert s.network.partition == {}
    assert s.told()[0][0].startswith("network w0 cannot reach w2, w3; w1")


def test_what_a_step_triggers_fits_together_with_what_happens_at_times(stage):
    """A link is down for two seconds from a step on; meanwhile, at its time, its rate changes; then it comes up."""
    s = stage("[{at: step 10, down: [w0, w1], for: 2s}, {at: 2s, link: [w0, w1], rate: 1mbit}]")
    s.begin()
    s.go_to(1.0)
    s.go_to(1.5, step=10)
    shape = s.network.links["w0-w1"][0]
    assert not s.network.links["w0-w1"][0]["up"]
    s.go_to(2.5)
    shape = s.network.links["w0-w1"][0]
    assert (shape["up"], shape["rate"]) == (False, 1_000_000)
    s.go_to(3.5)
    shape = s.network.links["w0-w1"][0]
    assert (shape["up"], shape["rate"]) == (True, 1_000_000)
    s.director.close()
    assert [(what, due) for what, due, _ in s.told()] == [
        ("w0-w1 down", "step 10"),
        ("w0-w1 rate=1mbit", 2),
        ("w0-w1 up", pytest.approx(3.0, abs=0.02)),
    ]


def test_one_direction_is_told_apart(stage):
    s = stage("[{at: 1s, from: w1, to: w0, loss: 2%}]")
    s.begin()
    s.go_to(2.0)
    s.director.close()
    assert [what for what, _, _ in s.told()] == ["w1>w0 loss=2%"]


def test_events_end_with_training(stage):
    s = stage("[{at: 1s, freeze: w0, for: 50s}, {at: 5s, kill: w1}, {at: 1s, down: [w0, w1]}]")
    s.begin()
    s.go_to(2.0)
    s.go_to(10.0, step=100)  # all steps are done: what follows is evaluation
    assert s.workers.signals == [("freeze", 0), ("thaw", 0)]
    assert s.network.links["w0-w1"][0]["up"]
    assert s.director.follow() == NEVER


def test_a_worker_frozen_for_too_long_is_dead_where_the_others_go_on(stage):
    s = stage("[{at: 1s, freeze: w2, for: 60s}]", tolerant=True)
    s.begin()
    s.go_to(8.9)
    assert s.workers.signals == [("freeze", 2)]
    s.go_to(9.1)  # 0.8 of a patience of 10 s: before anybody gives up on it by himself
    assert s.workers.signals == [("freeze", 2), ("kill", 2)]
    s.go_to(70.0)
    assert s.workers.signals == [("freeze", 2), ("kill", 2)]
    assert "too long for the others" in s.told()[-1][0]


def test_where_one_failure_ends_the_cell_the_frozen_are_left_to_the_others_patience(stage):
    s = stage("[{at: 1s, freeze: w2, for: 60s}]")
    s.begin()
    s.go_to(62.0)
    assert s.workers.signals == [("freeze", 2), ("thaw", 2)]


def test_random_events_are_the_same_every_time(stage):
    def run() -> list[Any]:
        s = stage("[{random: {kind: slow, every: 2s, for: 1s, seed: 7}}, {random: {kind: down, every: 3s, seed: 2}}]")
        s.begin()
        s.go_to(20.0)
        s.director.close()
        return [(what, round(at, 3)) for what, _, at in s.told()]

    once = run()
    assert once == run()
    assert {what.split()[-1] for what, _ in once} >= {"slower", "down", "up"}


def test_many_changes_of_links_are_summed_up_but_counted(stage):
    s = stage("[{at: 0s, flap: [w0, w1], every: 200ms, for: 100ms}, {at: 1s, slow: w3}]")
    s.begin()
    s.go_to(60.0)
    s.director.close()
    record = s.director.record
    assert len(record) == MOST + 2
    assert record[-1]["what"].endswith("more changes of links, the last at 60.0 s")
    assert "w3" in {row["subject"] for row in record}
    rows = list(s.director.counters())
    assert len(rows) > 2 * MOST
    assert {row[1] for row in rows} == {"fault"}
    assert all(s.start <= row[0] <= s.start + 61 for row in rows)


def test_samples_keep_out_of_the_way_of_events(stage):
    s = stage("[{at: 1s, slow: w3}, {at: step 50, kill: w0}]")
    assert s.director.quiet_for(1.0)
    s.begin()
    s.go_to(0.5)
    assert s.director.quiet_for(0.4)
    assert not s.director.quiet_for(0.6)
