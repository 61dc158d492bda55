"""Scheduling: what emulates or measures the network has priority over what computes; else links would seem slower than
asked."""

from __future__ import annotations

import os
from collections.abc import Sequence

MEASURING, EMULATING = 1, 2  # real-time priorities; the lowest is above every ordinary process
NICE = -10


def raise_above_workers(pids: Sequence[int], level: int = MEASURING) -> str:
    """Give processes the best class we may; return which, for the record. A box must not wait for a process that
    measures it or another box, either: measuring may spin."""
    for name, attempt in (("real-time", _real_time), (f"nice {NICE}", _nice)):
        try:
            for pid in pids:
                attempt(pid, level)
        except OSError:  # not allowed here; the verdict watches what comes of it
            continue
        return name
    return "ordinary"


def go_first(box: str) -> bool:
    """Put this process before all others, or it would measure how long it waits for a core; return whether it may also
    spin. Neither with the host box: packets cross its links in soft interrupts, which kernels before 6.5 leave to an
    ordinary thread on the same core. Measuring would delay what is measured; and the kernel's own clock, by which
    packets are timed, excludes the time to wake up."""
    if box == "host":
        return False
    raise_above_workers([os.getpid()])
    return True


def _real_time(pid: int, level: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(level))


def _nice(pid: int, level: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, NICE)
