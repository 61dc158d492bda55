"""Scheduling: what emulates or measures the network goes before what computes, or links
would seem slower than asked."""

from __future__ import annotations

import os
from collections.abc import Sequence

MEASURING, EMULATING = 1, 2  # real-time priorities; the lowest is above every ordinary process
NICE = -10


def raise_above_workers(pids: Sequence[int], level: int = MEASURING) -> str:
    """Give processes the best class we may; says which, for the record. A box must not wait for who measures it, too,
    nor for who measures another: measuring may spin."""
    for name, attempt in (("real-time", _real_time), (f"nice {NICE}", _nice)):
        try:
            for pid in pids:
                attempt(pid, level)
        except OSError:  # not allowed here; the verdict watches what comes of it
            continue
        return name
    return "ordinary"


def _real_time(pid: int, level: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(level))


def _nice(pid: int, level: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, NICE)
