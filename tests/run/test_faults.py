"""The injector's schedule: what happens when, and what is told of it."""

from __future__ import annotations

from typing import Any

import pytest
from directing import Returns, Stage

from testbed.run.faults import MOST, NEVER


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch):
    return lambda events, **options: Stage(monkeypatch, events, **options)


def test_without_events_there_is_nothing_to_do(stage):
    s = stage("[]")
    s.begin()
    assert s.injector.follow() == NEVER
    s.injector.close()
    assert s.network.calls == []
    assert s.injector.record == ()


def test_nothing_happens_before_training_begins(stage):
    s = stage("[{at: 0s, kill: w1}]")
    s.clock.now += 50
    assert s.injector.follow() < 0.1
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


def test_steps_that_training_does_not_have_trigger_nothing(stage):
    s = stage("[{at: step 99, slow: w0}, {at: step 100, kill: w3}]")
    s.begin()
    s.board.steps = [100, 99, 99, 99]  # the first has done all of them
    s.go_to(1.0)
    assert (s.board.slow[0], s.workers.signals) == (2, [])


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
    assert [row.problem for row in s.injector.record] == ["", "it was dead already", "it is dead"]


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
    told = [(f"{row.subject} {row.what}", row.problem) for row in s.injector.record]
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
    assert set(s.injector.killed) == {(2, 0), (2, 1), (1, 0), (1, 1)}
    assert [row.problem for row in s.injector.record if row.problem] == ["it was dead already"]


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
    assert [row.problem for row in s.injector.record] == ["", "the method cannot take a worker back"]


def test_links_change_at_their_time_and_are_as_planned_afterwards(stage):
    s = stage("[{at: 1s, link: [w0, w1], rate: 5mbit, latency: 50ms}, {at: 2s, down: [w1, w2], for: 3s}]")
    before = {name: [dict(ab), dict(ba)] for name, (ab, ba) in s.network.links.items()}
    s.begin(in_seconds=0.04)
    s.go_to(2.5)
    assert s.network.links["w0-w1"][0]["rate"] == s.network.links["w0-w1"][1]["rate"] == 5_000_000
    assert not s.network.links["w1-w2"][0]["up"]
    s.injector.close()
    assert s.network.links == before
    assert [(what, due) for what, due, _ in s.told()] == [("w0-w1 latency=50ms rate=5mbit", 1), ("w1-w2 down", 2)]


def test_a_partition_ends_with_the_cell(stage):
    s = stage("[{at: 1s, partition: [[w0, w1], [w2, w3]]}]")
    s.begin()
    s.go_to(2.0)
    assert s.network.partition == {"w0": ["w2", "w3"], "w1": ["w2", "w3"], "w2": ["w0", "w1"], "w3": ["w0", "w1"]}
    s.injector.close()
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
    s.injector.close()
    assert [(what, due) for what, due, _ in s.told()] == [
        ("w0-w1 down", "step 10"),
        ("w0-w1 rate=1mbit", 2),
        ("w0-w1 up", pytest.approx(3.0, abs=0.02)),
    ]


def test_one_direction_is_told_apart(stage):
    s = stage("[{at: 1s, from: w1, to: w0, loss: 2%}]")
    s.begin()
    s.go_to(2.0)
    s.injector.close()
    assert [what for what, _, _ in s.told()] == ["w1>w0 loss=2%"]


def test_events_end_with_training(stage):
    s = stage("[{at: 1s, freeze: w0, for: 50s}, {at: 5s, kill: w1}, {at: 1s, down: [w0, w1]}]")
    s.begin()
    s.go_to(2.0)
    s.go_to(10.0, step=100)  # all steps are done: what follows is evaluation
    assert s.workers.signals == [("freeze", 0), ("thaw", 0)]
    assert s.network.links["w0-w1"][0]["up"]
    assert s.injector.follow() == NEVER


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
        s.injector.close()
        return [(what, round(at, 3)) for what, _, at in s.told()]

    once = run()
    assert once == run()
    assert {what.split()[-1] for what, _ in once} >= {"slower", "down", "up"}


def test_many_changes_of_links_are_summed_up_but_counted(stage):
    s = stage("[{at: 0s, flap: [w0, w1], every: 200ms, for: 100ms}, {at: 1s, slow: w3}]")
    s.begin()
    s.go_to(60.0)
    s.injector.close()
    record = s.injector.record
    assert len(record) == MOST + 2
    assert record[-1].what.endswith("more changes of links, the last at 60.0 s")
    assert "w3" in {row.subject for row in record}
    rows = list(s.injector.counters())
    assert len(rows) > 2 * MOST
    assert {row[1] for row in rows} == {"fault"}
    assert all(s.start <= row[0] <= s.start + 61 for row in rows)


def test_samples_keep_out_of_the_way_of_events(stage):
    s = stage("[{at: 1s, slow: w3}, {at: step 50, kill: w0}]")
    assert s.injector.quiet_for(1.0)
    s.begin()
    s.go_to(0.5)
    assert s.injector.quiet_for(0.4)
    assert not s.injector.quiet_for(0.6)


def test_in_slow_motion_everything_is_due_in_scenario_time(stage):
    s = stage(
        "[{at: 2s, freeze: w0, for: 1500ms}, {at: 3s, link: [w0, w1], rate: 1mbit, for: 1s}, {at: 4s, kill: w2}]",
        slow_motion=8,
    )
    s.begin()
    s.go_to(15)
    assert s.workers.signals == []
    s.go_to(8 * 10)
    assert s.workers.signals == [("freeze", 0), ("thaw", 0), ("kill", 2)]
    s.injector.close()
    told = {words: (due, at) for words, due, at in s.told()}
    assert told["w0 frozen for 1.5s"] == (2, pytest.approx(2, abs=0.01))
    assert told["w0 goes on"] == (3.5, pytest.approx(3.5, abs=0.01))
    assert told["w0-w1 rate=1mbit"] == (3, pytest.approx(3, abs=0.01))
    assert told["w2 killed"] == (4, pytest.approx(4, abs=0.01))
    rows = {(name, what): when for when, _, name, what, _ in s.injector.counters()}
    assert rows["w2", "killed"] == pytest.approx(s.start / 8 + 4, abs=0.01)


def test_in_slow_motion_it_asks_for_real_seconds(stage):
    s = stage("[{at: 2s, kill: w2}]", slow_motion=8)
    s.begin()
    assert s.injector.follow() == pytest.approx(16)
    assert s.injector.quiet_for(15)
    assert not s.injector.quiet_for(17)
