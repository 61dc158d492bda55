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


def policy_after(box: str) -> tuple[bool, int, int]:
    """In a child, which is of this class for good."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        may_spin = priority.go_first(box)
        os.write(writer, bytes([may_spin, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0) + 20]))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        may_spin, scheduler, nice = stream.read()
    return bool(may_spin), scheduler, nice - 20


def test_who_measures_this_kernel_s_links_does_not_go_before_them() -> None:
    """Their packets travel in an ordinary thread of the kernel's, which must not wait for whoever measures."""
    assert policy_after("host") == (False, os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))


def test_who_measures_a_guest_s_links_may_spin() -> None:
    assert policy_after("uml")[0]
