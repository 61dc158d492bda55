"""The training clock: runs while workers train, stands still while they snapshot, checkpoint or connect late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic_ns, sleep

from testbed.worker.queueing import Queueing
from testbed.worker.trace import CODES, Trace

_EVAL = CODES["eval"]


class Clock:
    """Of one worker; all workers of a host start theirs at the same moment."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._zero = monotonic_ns()
        self._standing = 0
        self._started = 0
        self.queueing = Queueing()  # while it runs

    @property
    def standing_ns(self) -> int:
        """How long it has stood still since the start, or was set back."""
        return self._standing + self._zero - self._started

    def start(self, at_ns: int, elapsed_ns: int = 0) -> None:
        """Sleep until `at_ns` on the monotonic clock, then run from elapsed_ns on (not 0 where a run is resumed)."""
        sleep_until(at_ns)
        self._started = at_ns
        self._zero = at_ns - elapsed_ns
        self._standing = 0
        self.queueing = Queueing()

    def now_ns(self) -> int:
        return monotonic_ns() - self._zero - self._standing

    @contextmanager
    def paused(self) -> Iterator[None]:
        start = monotonic_ns()
        try:
            with self.queueing.uncounted():
                yield
        finally:
            end = monotonic_ns()
            self._standing += end - start
            self._trace.add(_EVAL, -1, start, end)


def sleep_until(at_ns: int) -> None:
    left = at_ns - monotonic_ns()
    if left > 0:
        sleep(left / 1e9)
