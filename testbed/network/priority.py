"""Scheduling: what emulates or measures the network goes before what computes, or links
would seem slower than asked."""

from __future__ import annotations

import os
from collections.abc import Sequence

REAL_TIME = 1  # the lowest real-time priority is above every ordinary process
NICE = -10


def raise_above_workers(pids: Sequence[int]) -> str:
    """Give processes the best class we may; says which, for the record."""
    for name, attempt in (("real-time", _real_time), (f"nice {NICE}", _nice)):
        try:
            for pid in pids:
                attempt(pid)
        except OSError:  # not allowed here; the verdict watches what comes of it
            continue
        return name
    return "ordinary"


def _real_time(pid: int) -> None:
    os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(REAL_TIME))


def _nice(pid: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, NICE)
