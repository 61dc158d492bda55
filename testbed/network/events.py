"""Timed changes of a running network: the schedule that the keeper follows, made by schedule.py."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from typing import Any

Change = tuple[float, str, dict[str, Any]]  # seconds from the start, the keeper's operation, its arguments
Done = tuple[float, float, str, str]  # when it was due, how late it was, of what, what went wrong ("": nothing)


class Timeline:
    """Changes in order of time, and a record of when each was really made."""

    def __init__(self) -> None:
        self._start = 0.0
        self._changes: deque[Change] = deque()
        self._done: list[Done] = []

    def start(self, changes: Iterable[Change]) -> None:
        """Begin the clock."""
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
        """How many changes are still to come."""
        return len(self._changes)

    def due(self) -> list[Change]:
        """The changes whose time has come; `record` tells what came of them."""
        now = time.monotonic() - self._start
        found = []
        while self._changes and self._changes[0][0] <= now:
            found.append(self._changes.popleft())
        return found

    def record(self, changes: Iterable[Change], problem: str = "") -> None:
        now = time.monotonic() - self._start
        self._done += [
            (at, now - at, arguments.get("link", operation), problem) for at, operation, arguments in changes
        ]

    def wait(self) -> float | None:
        """Seconds until the next change; None: nothing is planned."""
        if not self._changes:
            return None
        return max(0.0, self._changes[0][0] - (time.monotonic() - self._start))
