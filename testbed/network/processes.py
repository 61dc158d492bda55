"""Processes as /proc shows them. The box finds its own here; the shells and the fork server find those that they have
to stop."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Inherit from now on what our descendants leave behind, so that it can be found and ended."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this process cannot adopt orphans")


def descendants(pid: int) -> list[int]:
    """Return children and their children; the nearest first."""
    found: list[int] = []
    queue = [pid]
    while queue:
        try:
            for task in Path(f"/proc/{queue.pop(0)}/task").iterdir():
                children = [int(child) for child in (task / "children").read_text().split()]
                found += children
                queue += children
        except OSError:  # it ended meanwhile
            continue
    return found


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used; 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def softirq_seconds(stat: str, ticks: int) -> dict[str, float]:
    """Return, by processor, the time spent in softirqs since boot. `stat`: the text of /proc/stat, which counts that
    many ticks a second."""
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    return {name: int(numbers[6]) / ticks for name, *numbers in lines if name != "cpu" and len(numbers) > 6}
