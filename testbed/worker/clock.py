"""The training clock: runs while workers train, stops while they snapshot, checkpoint or connect late. It shows
scenario time, which passes more slowly than real time in slow motion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic_ns, sleep

from testbed.worker.cpu_wait import CpuWait
from testbed.worker.trace import CODES, Trace

_EVAL = CODES["eval"]


class Clock:
    """The clock of one worker; all workers of a host start theirs at the same moment."""

    def __init__(self, trace: Trace, slow_motion: float = 1.0) -> None:
        self._trace = trace
        self._slow_motion = slow_motion
        self._zero = monotonic_ns()
        self._standing = 0
        self._started = 0
        self.cpu_wait = CpuWait()  # while it runs

    @property
    def standing_ns(self) -> int:
        """Return how long it has been stopped since the start, or was set back."""
        return self._scenario(self._standing + self._zero - self._started)

    def start(self, at_ns: int, elapsed_ns: int = 0) -> None:
        """Sleep until `at_ns` on the monotonic clock, then run from elapsed_ns of scenario time on (not 0 where a run
        is resumed)."""
        sleep_until(at_ns)
        self._started = at_ns
        self._zero = at_ns - round(elapsed_ns * self._slow_motion)
        self._standing = 0
        self.cpu_wait = CpuWait()

    def now_ns(self) -> int:
        return self._scenario(monotonic_ns() - self._zero - self._standing)

    def _scenario(self, real_ns: int) -> int:
        return real_ns if self._slow_motion == 1 else round(real_ns / self._slow_motion)

    @contextmanager
    def paused(self) -> Iterator[None]:
        start = monotonic_ns()
        try:
            with self.cpu_wait.uncounted():
                yield
        finally:
            end = monotonic_ns()
            self._standing += end - start
            self._trace.add(_EVAL, -1, start, end)


def sleep_until(at_ns: int) -> None:
    left = at_ns - monotonic_ns()
    if left > 0:
        sleep(left / 1e9)
