"""Events and traces as changes in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from network.examples import network

from testbed.errors import ScenarioError
from testbed.link.shape import Shape
from testbed.plan import schedule
from testbed.plan.changes import Change
from testbed.plan.make import plan as make_plan
from testbed.plan.model import LinkPlan, NetworkPlan, TraceFile
from testbed.plan.schedule import Planned, changes, of_scenario, resumed
from testbed.plan.timeline import Action
from testbed.plan.traces import Sample, Trace
from testbed.scenario.links import LinkOptions
from testbed.scenario.load import load, loads

CHAIN = network("{topology: chain, link: {latency: 5ms, rate: 100mbit}}", workers=3)
BOTH = (("w0", "w1"), ("w1", "w0"))
MBIT = 10**6


def planned(*events: str, link: str = "latency: 5ms, rate: 100mbit") -> Planned:
    """What a chain of four workers does with these events."""
    lines = "".join(f"    - {event}\n" for event in events)
    text = f"workers: 4\nnetwork:\n  topology: chain\n  link: {{{link}}}\n  events:\n{lines}methods: [allreduce]\n"
    scenario = loads(text, "scenario.yaml")
    return of_scenario(scenario, make_plan(scenario, cores=8).network)


def told(*events: str, link: str = "latency: 5ms, rate: 100mbit") -> list[tuple[Any, ...]]:
    """The same for short assertions: (time, link, changes there, changes back), or (time, blocked)."""
    found = planned(*events, link=link)
    assert found.cut is None
    return [short(change) for change in found.changes]


def short(change: Change) -> tuple[Any, ...]:
    at, operation, arguments = change
    if operation == "set_partition":
        return at, arguments["blocked"]
    return at, arguments["link"], arguments["ab"], arguments["ba"]


def test_an_event_changes_what_it_names_and_nothing_else() -> None:
    slow = {"rate": MBIT}
    assert told("{at: 30s, link: [w1, w0], rate: 1mbit}") == [(30, "w0-w1", slow, slow)]
    assert told("{at: 30s, from: w1, to: w0, rate: 1mbit}") == [(30, "w0-w1", {}, slow)]
    assert told("{at: 30s, from: w2, to: w3, latency: 1s, loss: 2%, jitter: 3ms, rate: unlimited}") == [
        (30, "w2-w3", {"latency": 1.0, "loss": 0.02, "jitter": 0.003, "rate": None}, {})
    ]


def test_what_is_as_it_was_is_no_change() -> None:
    assert told("{at: 1s, link: [w0, w1], rate: 100mbit}", "{at: 2s, up: [w0, w1]}", "{at: 3s, heal}") == []


def test_after_its_time_an_event_is_undone() -> None:
    there, back = {"rate": MBIT, "latency": 0.08}, {"rate": 100 * MBIT, "latency": 0.005}
    assert told("{at: 10s, link: [w0, w1], rate: 1mbit, latency: 80ms, for: 5s}") == [
        (10, "w0-w1", there, there),
        (15, "w0-w1", back, back),
    ]


def test_what_another_event_did_meanwhile_stays() -> None:
    """Not what was before, but what would be without the event."""
    found = told(
        "{at: 10s, from: w0, to: w1, rate: 1mbit, for: 10s}",
        "{at: 15s, from: w0, to: w1, latency: 80ms}",
        "{at: 17s, from: w0, to: w1, rate: 2mbit, for: 1s}",
        "{at: 18.5s, from: w0, to: w1, rate: 50mbit}",
    )
    assert [(at, ab) for at, _, ab, _ in found] == [
        (10, {"rate": MBIT}),
        (15, {"latency": 0.08}),
        (17, {"rate": 2 * MBIT}),
        (18, {"rate": MBIT}),
        (18.5, {"rate": 50 * MBIT}),  # a later event is above the one that ends at 20 s
    ]


def test_an_event_that_ends_below_another_is_not_seen() -> None:
    found = told(
        "{at: 1s, from: w0, to: w1, rate: 1mbit, for: 5s}", "{at: 2s, from: w0, to: w1, rate: 2mbit, for: 10s}"
    )
    assert [(at, ab["rate"] // MBIT) for at, _, ab, _ in found] == [(1, 1), (2, 2), (12, 100)]


def test_what_ends_when_the_next_begins_ends_first() -> None:
    found = told(
        "{at: 1s, from: w0, to: w1, rate: 1mbit, for: 1s}", "{at: 2s, from: w0, to: w1, latency: 9ms, for: 1s}"
    )
    assert [(at, ab) for at, _, ab, _ in found] == [
        (1, {"rate": MBIT}),
        (2, {"rate": 100 * MBIT, "latency": 0.009}),
        (3, {"latency": 0.005}),
    ]


def test_a_buffer_in_seconds_replaces_one_in_packets() -> None:
    limited = network("{topology: chain}", workers=2)
    link = replace(limited.links[0], ab=Shape(rate=MBIT, limit=20))
    action = Action(1.0, "link", directions=(("w0", "w1"),), change=LinkOptions.model_validate({"buffer": "50ms"}))
    (change,) = changes([action], replace(limited, links=(link,))).changes
    assert change[2]["ab"] == {"buffer": 0.05, "limit": None}


def test_down_and_up() -> None:
    off, on = {"up": False}, {"up": True}
    assert told("{at: 1s, down: [w0, w1]}", "{at: 2s, up: [w0, w1]}") == [(1, "w0-w1", off, off), (2, "w0-w1", on, on)]
    assert told("{at: 1s, down: [w0, w1], for: 9s}", "{at: 2s, up: [w0, w1]}") == [
        (1, "w0-w1", off, off),
        (2, "w0-w1", on, on),
    ]
    assert told("{at: 1s, down: [w0, w1], for: 9s}", "{at: 2s, down: [w0, w1], for: 1s}") == [
        (1, "w0-w1", off, off),
        (10, "w0-w1", on, on),
    ]


def test_a_partition_blocks_packets_between_its_groups_only() -> None:
    assert told("{at: 1s, partition: [[w0, w3], [w1]], for: 4s}") == [
        (1, {"w0": ["w1"], "w1": ["w0", "w3"], "w3": ["w1"]}),  # w2 reaches everybody
        (5, {}),
    ]


def test_partitions_add_up_until_they_heal() -> None:
    first, second = "{at: 1s, partition: [[w0], [w1]]}", "{at: 2s, partition: [[w0, w1], [w3]], for: 10s}"
    both = {"w0": ["w1", "w3"], "w1": ["w0", "w3"], "w3": ["w0", "w1"]}
    alone = {"w0": ["w1"], "w1": ["w0"]}
    assert told(first, second) == [(1, alone), (2, both), (12, alone)]
    assert told(first, second, "{at: 5s, heal}") == [(1, alone), (2, both), (5, {})]


def test_a_partition_leaves_links_alone_and_links_leave_partitions_alone() -> None:
    found = told(
        "{at: 1s, partition: [[w0], [w1]]}", "{at: 1s, down: [w0, w1]}", "{at: 2s, heal}", "{at: 3s, up: [w0, w1]}"
    )
    assert [one[1] for one in found] == ["w0-w1", {"w0": ["w1"], "w1": ["w0"]}, {}, "w0-w1"]


def test_what_workers_do_is_not_the_networks() -> None:
    assert (
        told(
            "{at: 1s, kill: w1}",
            "{at: 1s, slow: w2, for: 1s}",
            "{at: 2s, freeze: w1, for: 1s}",
            "{at: step 5, down: [w0, w1]}",
        )
        == []
    )


def test_what_repeats_for_ever_is_spelt_out_for_an_hour_and_does_not_stay_down() -> None:
    found = planned("{at: 7200s, flap: [w0, w1], every: 7s, for: 6s}")
    assert found.cut == 7200 + schedule.HORIZON + 6
    ups = [change[2]["ab"]["up"] for change in found.changes]
    assert ups == [False, True] * 516
    assert found.changes[-1][0] == found.cut


def test_what_repeats_and_changes_nothing_ends_too() -> None:
    assert planned("{at: 0s, kill: w1, every: 1s}").changes == []
    assert (
        planned("{at: 0s, link: [w0, w1], rate: 1mbit, every: 1s}").changes
        == planned("{at: 0s, link: [w0, w1], rate: 1mbit}").changes
    )


def test_only_so_many_changes_are_spelt_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MOST", 99)
    found = planned("{at: 0s, flap: [w0, w1]}")
    assert 99 <= len(found.changes) <= 103
    assert found.cut
    assert found.cut < 600
    assert found.changes[-1][2]["ab"] == {"up": True}
    assert planned("{at: 0s, kill: w1, every: 10ms}") == Planned([], pytest.approx(1.0))


def test_a_single_event_is_never_too_late() -> None:
    assert told("{at: 20h, link: [w0, w1], rate: 1mbit, for: 9h}")[-1][0] == 29 * 3600


def test_random_events_are_the_same_each_time() -> None:
    event = "{random: {kind: down, every: 60s, for: 2s, seed: 3}, until: 10min}"
    found = planned(event)
    assert found == planned(event)
    assert len(found.changes) >= 4
    assert found.changes != planned(event.replace("seed: 3", "seed: 4")).changes


# Traces


def traced(there: Trace, back: Trace | None = None) -> tuple[NetworkPlan, Any]:
    """A chain whose first link is driven, and what reads its traces."""
    files = {"there": there, "back": back}
    link = replace(
        CHAIN.links[0], trace_ab=TraceFile("csv", "there"), trace_ba=TraceFile("csv", "back") if back else None
    )
    return replace(CHAIN, links=(link, *CHAIN.links[1:])), lambda file: files[file.path]


ROWS = Trace((Sample(0, {"rate": 10 * MBIT}), Sample(2, {"latency": 0.05}), Sample(4, {"rate": 20 * MBIT})))


def test_a_trace_drives_its_direction() -> None:
    plan, read = traced(ROWS)
    found = changes([], plan, read=read)
    assert [short(change) for change in found.changes] == [
        (0, "w0-w1", {"rate": 10 * MBIT}, {}),
        (2, "w0-w1", {"latency": 0.05}, {}),
        (4, "w0-w1", {"rate": 20 * MBIT}, {}),
    ]
    assert found.cut is None


def test_both_directions_change_together_where_they_do_at_once() -> None:
    plan, read = traced(ROWS, Trace((Sample(2, {"loss": 0.1}),)))
    assert [short(change) for change in changes([], plan, read=read).changes][1] == (
        2,
        "w0-w1",
        {"latency": 0.05},
        {"loss": 0.1},
    )


def test_an_event_is_above_the_trace_which_goes_on_below() -> None:
    plan, read = traced(ROWS)
    action = Action(1.0, "link", directions=BOTH, change=LinkOptions.model_validate({"rate": "1mbit"}), lasting=4.0)
    assert [(at, ab) for at, _, ab, _ in map(short, changes([action], plan, read=read).changes)] == [
        (0, {"rate": 10 * MBIT}),
        (1, {"rate": MBIT}),
        (2, {"latency": 0.05}),
        (5, {"rate": 20 * MBIT}),
    ]


def test_a_trace_that_starts_over_does_so_for_an_hour_and_then_ends() -> None:
    plan, read = traced(Trace((Sample(0, {"rate": MBIT}), Sample(5, {"rate": 2 * MBIT})), period=10))
    found = changes([], plan, read=read)
    assert [(at, ab["rate"] // MBIT) for at, _, ab, _ in map(short, found.changes)][:4] == [
        (0, 1),
        (5, 2),
        (10, 1),
        (15, 2),
    ]
    assert found.cut == schedule.HORIZON
    assert short(found.changes[-1]) == (3600, "w0-w1", {"rate": 100 * MBIT}, {})


def test_a_long_recording_is_followed_to_its_end() -> None:
    plan, read = traced(Trace((Sample(0, {"rate": MBIT}), Sample(36_000, {"rate": 2 * MBIT}))))
    found = changes([], plan, read=read)
    assert [at for at, _, _ in found.changes] == [0, 36_000]
    assert found.cut is None


def test_while_nothing_leaves_packets_wait() -> None:
    plan, read = traced(
        Trace((Sample(0, {"rate": MBIT}), Sample(1, {"rate": MBIT}, hold=2.0), Sample(3, {"rate": MBIT})), period=9)
    )
    found = [short(change) for change in changes([], plan, horizon=8, read=read).changes]
    assert [(at, ab) for at, _, ab, _ in found[:3]] == [
        (0, {"rate": MBIT}),
        (1, {"latency": 2.005}),
        (3, {"latency": 0.005}),
    ]
    event = Action(1.5, "link", directions=BOTH, change=LinkOptions.model_validate({"rate": "5mbit"}), lasting=1.0)
    found = [short(change) for change in changes([event], plan, horizon=8, read=read).changes]
    assert (1.5, "w0-w1", {"rate": 5 * MBIT, "latency": 0.005}, {"rate": 5 * MBIT}) in found  # told a rate, it has one
    assert (2.5, "w0-w1", {"rate": MBIT, "latency": 2.005}, {"rate": 100 * MBIT}) in found


def test_an_event_may_start_a_trace(tmp_path: Path) -> None:
    (tmp_path / "slow.csv").write_text("time,rate\n0s,1mbit\n3s,2mbit\n9s,3mbit\n")
    file = tmp_path / "s.yaml"
    file.write_text(
        "workers: 2\nnetwork:\n  topology: chain\n  events:\n"
        "    - {at: 10s, from: w0, to: w1, trace: slow.csv, latency: 1ms, for: 5s}\nmethods: [allreduce]\n"
    )
    scenario = load(file, ())
    found = of_scenario(scenario, make_plan(scenario, cores=2).network)
    assert [short(change) for change in found.changes] == [
        (10, "w0-w1", {"latency": 0.001, "rate": MBIT}, {}),
        (13, "w0-w1", {"rate": 2 * MBIT}, {}),
        (15, "w0-w1", {"latency": 0.005, "rate": 100 * MBIT}, {}),
    ]


def test_a_link_s_trace_is_found_beside_the_scenario_and_its_errors_have_lines(tmp_path: Path) -> None:
    (tmp_path / "fast.csv").write_text("time,rate\n0s,1mbit\n1s,oops\n")
    file = tmp_path / "s.yaml"
    file.write_text("workers: 2\nnetwork:\n  topology: chain\n  link: {trace: fast.csv}\nmethods: [allreduce]\n")
    scenario = load(file, ())
    with pytest.raises(ScenarioError, match=r"fast\.csv:3: rate: 'oops'"):
        of_scenario(scenario, make_plan(scenario, cores=2).network)


# What the daemon does with it


class Follower:
    """Applies changes as the daemon does."""

    def __init__(self, plan: NetworkPlan) -> None:
        self.links: dict[str, LinkPlan] = {link.name: link for link in plan.links}
        self.blocked: dict[str, list[str]] = {}

    def follow(self, found: Iterable[Change]) -> Follower:
        for _, operation, arguments in found:
            if operation == "set_partition":
                self.blocked = arguments["blocked"]
                continue
            old = self.links[arguments["link"]]
            self.links[old.name] = replace(
                old, ab=replace(old.ab, **arguments["ab"]), ba=replace(old.ba, **arguments["ba"])
            )
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Follower) and (self.links, self.blocked) == (other.links, other.blocked)

    __hash__ = None  # type: ignore[assignment]


options = some.fixed_dictionaries(
    {},
    optional={
        "rate": some.sampled_from(["1mbit", "5mbit", "unlimited"]),
        "latency": some.sampled_from(["0ms", "7ms"]),
        "loss": some.sampled_from(["0%", "3%"]),
    },
).map(LinkOptions.model_validate)
directions = some.sampled_from([BOTH, BOTH[:1], (("w1", "w2"), ("w2", "w1"))])
moments = some.integers(0, 20).map(float)
lasting = some.none() | some.integers(1, 10).map(float)
actions = some.lists(
    some.builds(Action, at=moments, verb=some.just("link"), directions=directions, change=options, lasting=lasting)
    | some.builds(Action, at=moments, verb=some.just("down"), directions=directions, lasting=lasting)
    | some.builds(Action, at=moments, verb=some.just("up"), directions=directions)
    | some.builds(Action, at=moments, verb=some.just("heal"))
    | some.builds(
        Action, at=moments, verb=some.just("partition"), groups=some.just((("w0",), ("w1", "w2"))), lasting=lasting
    ),
    max_size=8,
).map(lambda found: sorted(found, key=lambda action: action.at))


@given(actions, moments)
def test_at_any_moment_the_network_is_as_if_ended_events_had_never_been(found: list[Action], moment: float) -> None:
    moment += 0.5
    begun = [action for action in found if action.at <= moment]
    lasting_on = [one for one in begun if one.lasting is None or one.at + one.lasting > moment]
    healed = max((action.at for action in begun if action.verb == "heal"), default=-1.0)
    after = [one for one in lasting_on if one.verb != "partition" or one.at >= healed]

    def now(some_actions: list[Action]) -> Follower:
        told_so_far = [change for change in changes(some_actions, CHAIN).changes if change[0] <= moment]
        return Follower(CHAIN).follow(told_so_far)

    assert now(found) == now([replace(action, lasting=None) for action in after])


@given(actions)
def test_when_everything_has_ended_the_network_is_what_it_was(found: list[Action]) -> None:
    ending = [replace(action, lasting=action.lasting or 1.0) for action in found if action.verb != "up"]
    assert Follower(CHAIN).follow(changes(ending, CHAIN).changes) == Follower(CHAIN)


@given(actions, moments)
def test_whoever_comes_later_catches_up(found: list[Action], moment: float) -> None:
    whole = changes(found, CHAIN).changes
    late = list(resumed(whole, moment))
    assert [at for at, _, _ in late] == sorted(max(at, moment) for at, _, _ in late)
    assert len({arguments.get("link") for at, _, arguments in late if at == moment}) <= 3
    assert Follower(CHAIN).follow(late) == Follower(CHAIN).follow(whole)
    assert [change for change in late if change[0] > moment] == [change for change in whole if change[0] > moment]
