"""Work on a processor in slow motion: how long it lasts, whatever else the machine does. With clocks of our own."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pytest

from testbed.worker.clock import Clock
from testbed.worker.padding import Padding
from testbed.worker.trace import KINDS, WORK, Trace


@dataclass
class Machine:
    """Time as a test lets it pass."""

    now: int = 1_000_000
    work: int = 50
    slept: list[int] = field(default_factory=list)

    def compute(self, ns: int, waiting: int = 0) -> None:
        """On a processor for so long, after waiting for one."""
        self.now += ns + waiting
        self.work += ns

    def sleep(self, until: int) -> None:
        self.slept.append(max(0, until - self.now))
        self.now = max(self.now, until)

    def padding(self, factor: float) -> Padding:
        return Padding(factor, Clock(Trace(0)), work=lambda: self.work, now=lambda: self.now, sleep=self.sleep)


def test_work_lasts_as_many_times_longer_as_all_else() -> None:
    machine = Machine()
    with machine.padding(8).begin():
        machine.compute(100)
    assert machine.slept == [700]


def test_waiting_for_a_processor_disappears_where_the_padding_covers_it() -> None:
    machine = Machine()
    with machine.padding(8).begin():
        machine.compute(100, waiting=300)
    assert machine.slept == [400]
    with machine.padding(8).begin():
        machine.compute(100, waiting=900)
    assert machine.slept == [400, 0]


def test_what_is_padded_inside_is_not_padded_again() -> None:
    machine = Machine()
    padding, began = machine.padding(4), machine.now
    with padding.begin():
        machine.compute(10)
        with padding.begin():
            machine.compute(100)
        machine.compute(10)
    assert machine.now - began == 4 * 120


def test_a_failure_is_told_at_once() -> None:
    machine, trace = Machine(), Trace(0, slow_motion=4)
    trace.padding = machine.padding(4)
    for block in (trace.padding.begin(), trace.span("mix")):
        with pytest.raises(KeyError):
            _fail(machine, block)
    assert machine.slept == []


def _fail(machine: Machine, block: AbstractContextManager[object]) -> None:
    with block:
        machine.compute(100)
        raise KeyError


class Account:
    """How long the thread has waited for a processor, as the kernel would tell."""

    def __init__(self) -> None:
        self.ns = 0

    def forgive(self, ns: int) -> None:
        self.ns -= ns


@pytest.mark.parametrize(("waiting", "counted"), [(300, 0), (700, 0), (900, 200)])
def test_only_what_the_padding_does_not_cover_counts_as_waiting(waiting: int, counted: int) -> None:
    machine, account = Machine(), Account()
    clock = Clock(Trace(0))
    clock.cpu_wait = account  # type: ignore[assignment]
    padding = Padding(8, clock, work=lambda: machine.work, now=lambda: machine.now, sleep=machine.sleep)
    with padding.begin():
        machine.compute(100, waiting=waiting)
        account.ns += waiting
    assert account.ns == counted


@pytest.mark.parametrize("kind", KINDS)
def test_spans_of_work_are_padded_and_others_are_not(kind: str) -> None:
    machine, trace = Machine(), Trace(0, slow_motion=4)
    trace.padding = machine.padding(4)
    with trace.span(kind):
        machine.compute(100)
    assert machine.slept == ([300] if kind in WORK else [])
