"""Waiting for what is slow but alive; the clock is made up."""

from __future__ import annotations

import os
import socket

import pytest

from testbed.network import waiting
from testbed.network.agent import allow_descriptors
from testbed.network.waiting import Patience, readable


class Clock:
    """A clock that stands still unless told to go on, and a process that has used so much of a processor."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.used = 5.0

    def monotonic(self) -> float:
        return self.now

    def cpu(self) -> float:
        return self.used


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(waiting, "time", made)
    return made


def test_without_a_sign_of_life_it_runs_out(clock: Clock) -> None:
    patience = Patience(30, clock.cpu)
    clock.now += 29
    clock.used += 0.1  # too little: it hangs
    assert patience.left == pytest.approx(1)
    clock.now += 1
    assert patience.left <= 0
    assert str(patience) == "30 s"


def test_who_computes_is_waited_for(clock: Clock) -> None:
    patience = Patience(30, clock.cpu)
    for _ in range(8):
        clock.now += 25
        clock.used += 1
        assert patience.left == 30
    assert str(patience) == "30 s after its last sign of life"


def test_who_says_something_is_waited_for(clock: Clock) -> None:
    patience = Patience(30, clock.cpu)
    clock.now += 29
    patience.sign()
    clock.now += 29
    assert patience.left == pytest.approx(1)


def test_it_ends_some_time_however_alive(clock: Clock) -> None:
    patience = Patience(30, clock.cpu)
    for _ in range(11):
        clock.now += 27
        clock.used += 27
        assert patience.left > 0
    clock.now += 27
    clock.used += 27
    assert patience.left <= 0


def test_who_wants_no_longer_is_not_kept(clock: Clock) -> None:
    patience = Patience(5, clock.cpu, most=5)
    clock.now += 5
    clock.used += 5
    assert patience.left <= 0


def test_what_is_there_to_read_is_read() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not Patience(0.05, lambda: 0.0).wait_for(other)
        one.sendall(b".")
        assert Patience(0.05, lambda: 0.0).wait_for(other)


def test_descriptors_above_those_that_select_takes() -> None:
    allow_descriptors(3100)
    one, other = socket.socketpair()
    with one, other:
        high = os.dup2(other.fileno(), 3000)
        try:
            assert readable([high], 0.0) == []
            one.sendall(b".")
            assert readable([other, high], 60.0) == [other, high]
        finally:
            os.close(high)
