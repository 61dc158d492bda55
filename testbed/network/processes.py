"""Processes as the kernel's tables show them. The box finds its own, the warden and the nursery
those that they have to stop."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """From now on what our descendants leave behind becomes our child, so that it can be found and ended."""
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this process cannot adopt orphans")


def descendants(pid: int) -> list[int]:
    """Children, and theirs; the nearest first."""
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
    """Processor time that it has used; none where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
