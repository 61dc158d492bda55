"""Timed changes of links: a schedule that the keeper follows, and traces that drive a link over time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

Change = tuple[float, str, dict[str, Any], dict[str, Any]]  # seconds from the start, link, new ab and ba numbers


class Timeline:
    """Changes in order of time, and a record of when each was really made."""

    def __init__(self) -> None:
        self._start = 0.0
        self._changes: list[Change] = []
        self._done: list[tuple[float, float, str]] = []

    def start(self, changes: list[Change]) -> None:
        self._start = time.monotonic()
        self._changes = sorted(changes, key=lambda change: change[0])
        self._done = []

    def stop(self) -> list[tuple[float, float, str]]:
        self._changes = []
        return self._done

    def due(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """The changes whose time has come."""
        while self._changes and self._changes[0][0] <= time.monotonic() - self._start:
            at, link, ab, ba = self._changes.pop(0)
            self._done.append((at, time.monotonic() - self._start - at, link))
            yield link, ab, ba

    def wait(self) -> float | None:
        """Seconds until the next change; None: nothing is planned."""
        if not self._changes:
            return None
        return max(0.0, self._changes[0][0] - (time.monotonic() - self._start))
