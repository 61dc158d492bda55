"""Timed changes of a running network: the schedule that the network daemon follows, made by schedule.py."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

Change = tuple[float, str, dict[str, Any]]  # seconds from the start, the daemon's operation, its arguments
Done = tuple[float, float, str, str]  # when it was due, how late it was, its subject, what went wrong ("": nothing)


class Timeline:
    """Changes in order of scenario time, and a record of when each was really made."""

    def __init__(self, slow_motion: float = 1.0) -> None:
        self._slow_motion = slow_motion
        self._start = 0.0
        self._changes: deque[Change] = deque()
        self._done: list[Done] = []

    def start(self, changes: Iterable[Change]) -> None:
        """Start the clock."""
        self._start = time.monotonic()
        self._done = []
        self.replace(changes)

    def replace(self, changes: Iterable[Change]) -> None:
        """Follow another schedule from now on, on the same clock."""
        self._changes = deque(sorted(changes, key=lambda change: change[0]))

    def stop(self) -> list[Done]:
        self._changes.clear()
        return self._done

    @property
    def left(self) -> int:
        """Return how many changes are still to come."""
        return len(self._changes)

    def due(self) -> list[Change]:
        """Return the changes that are due; `record` takes their outcome."""
        now = self._now
        found = []
        while self._changes and self._changes[0][0] <= now:
            found.append(self._changes.popleft())
        return found

    def record(self, changes: Iterable[Change], problem: str = "") -> None:
        now = self._now
        self._done += [
            (at, now - at, arguments.get("link", operation), problem) for at, operation, arguments in changes
        ]

    def wait(self) -> float | None:
        """Return the real seconds until the next change; None: nothing is planned."""
        if not self._changes:
            return None
        return self._slow_motion * max(0.0, self._changes[0][0] - self._now)

    @property
    def _now(self) -> float:
        return (time.monotonic() - self._start) / self._slow_motion
