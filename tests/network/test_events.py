"""The timeline: what is due, what was done, how late."""

from __future__ import annotations

import pytest

from testbed.plan import changes
from testbed.plan.changes import Change, Timeline


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(changes, "time", made)
    return made


def change(at: float, link: str = "w0-w1") -> Change:
    return at, "set_link", {"link": link, "ab": {}, "ba": {}}


def test_changes_are_due_in_order_of_time_however_they_were_given(clock: Clock) -> None:
    timeline = Timeline()
    timeline.start([change(2), change(1, "w1-w2"), change(3)])
    assert timeline.due() == []
    assert timeline.wait() == 1
    clock.now += 2.5
    assert timeline.due() == [change(1, "w1-w2"), change(2)]
    assert timeline.wait() == 0.5
    assert timeline.left == 1


def test_what_is_late_is_on_record(clock: Clock) -> None:
    timeline = Timeline()
    timeline.start([change(1), (2, "set_partition", {"blocked": {}})])
    clock.now += 1.25
    timeline.record(timeline.due())
    clock.now += 1
    timeline.record(timeline.due(), "the box is gone")
    assert timeline.stop() == [(1, 0.25, "w0-w1", ""), (2, 0.25, "set_partition", "the box is gone")]


def test_nothing_is_due_after_the_stop_and_a_new_start_begins_anew(clock: Clock) -> None:
    timeline = Timeline()
    timeline.start([change(1)])
    timeline.stop()
    clock.now += 5
    assert timeline.due() == []
    assert timeline.wait() is None
    timeline.start([change(1)])
    assert timeline.wait() == 1
    assert timeline.stop() == []


def test_another_schedule_on_the_same_clock(clock: Clock) -> None:
    timeline = Timeline()
    timeline.start([change(1), change(9)])
    clock.now += 5
    timeline.record(timeline.due())
    timeline.replace([change(5, "w1-w2"), change(7)])
    assert timeline.due() == [change(5, "w1-w2")]
    assert timeline.wait() == 2
    assert [what for _, _, what, _ in timeline.stop()] == ["w0-w1"]


def test_in_slow_motion_times_are_the_scenarios(clock: Clock) -> None:
    timeline = Timeline(slow_motion=8)
    timeline.start([change(2), change(3)])
    assert timeline.wait() == 16  # real seconds
    clock.now += 15
    assert timeline.due() == []
    clock.now += 5
    timeline.record(timeline.due())
    assert timeline.stop() == [(2, 0.5, "w0-w1", "")]
