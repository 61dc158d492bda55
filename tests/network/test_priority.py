"""Who goes first."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from testbed.network import priority


@pytest.fixture
def process() -> Iterator[int]:
    sleeping = subprocess.Popen(["sleep", "60"])
    yield sleeping.pid
    sleeping.kill()
    sleeping.wait()


def test_what_is_said_is_what_was_done(process: int) -> None:
    said = priority.raise_above_workers([process])
    scheduler, nice = os.sched_getscheduler(process), os.getpriority(os.PRIO_PROCESS, process)
    expected = {
        "real-time": (os.SCHED_RR, 0),
        "nice -10": (os.SCHED_OTHER, -10),
        "ordinary": (os.SCHED_OTHER, os.getpriority(os.PRIO_PROCESS, 0)),
    }
    assert (scheduler, nice) == expected[said]


def test_a_box_goes_before_who_measures(process: int) -> None:
    if priority.raise_above_workers([process], priority.EMULATING) == "real-time":
        assert os.sched_getparam(process).sched_priority > priority.MEASURING


def test_where_nothing_is_allowed_it_stays_as_it_was(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert priority.raise_above_workers([process]) == "nice -10" or os.geteuid() != 0
    monkeypatch.setattr(os, "setpriority", refuse)
    assert priority.raise_above_workers([process]) == "ordinary"


def test_a_process_that_is_gone_is_no_error() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert priority.raise_above_workers([gone.pid]) == "ordinary"
