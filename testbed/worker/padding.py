"""In slow motion, stretches work on a processor by the same factor as everything else: the rest of its time is slept.

The thread's own processor time counts. Waiting for a processor does not, and is absorbed by the sleep: as long as the
padded time covers it, workers that share cores take no time from each other. Traces and peers use it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns, thread_time_ns
from types import TracebackType

from testbed.worker.clock import Clock, sleep_until

Nanoseconds = Callable[[], int]


class Padding:
    """The padding of one worker."""

    def __init__(
        self,
        factor: float,
        clock: Clock,
        *,
        work: Nanoseconds = thread_time_ns,
        now: Nanoseconds = monotonic_ns,
        sleep: Callable[[int], None] = sleep_until,
    ) -> None:
        """`factor`: real time for each unit of `work`, which counts nanoseconds on a processor (of a worker with a GPU:
        any time, as it waits for the GPU)."""
        self.factor, self._clock = factor, clock
        self.work, self.now, self._sleep = work, now, sleep

    def begin(self) -> Block:
        return Block(self, self._clock.cpu_wait.ns)

    def pad(self, block: Block) -> None:
        until = block.until_ns
        uncovered = max(0, self.now() - until)
        queued = self._clock.cpu_wait.ns - block.queued_ns
        self._clock.cpu_wait.forgive(max(0, queued - uncovered))
        self._sleep(until)


class Block:
    """Some work, since this was made."""

    __slots__ = ("_padding", "_work", "queued_ns", "start_ns")

    def __init__(self, padding: Padding, queued_ns: int) -> None:
        self._padding = padding
        self.queued_ns = queued_ns
        self.start_ns = padding.now()
        self._work = padding.work()

    @property
    def until_ns(self) -> int:
        """Return when the work done so far should be over."""
        return self.start_ns + round(self._padding.factor * (self._padding.work() - self._work))

    def end(self) -> None:
        """Sleep until then. Blocks may nest: what was padded inside is not padded again."""
        self._padding.pad(self)

    def __enter__(self) -> Block:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
