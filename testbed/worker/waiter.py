"""Threads that wait for messages, so that the trace knows when they arrived while the worker was computing.

Gloo does not report a message until something waits for it. Channels use one waiter per edge, in some of the steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic_ns

from torch.distributed import Work

_NO_END = timedelta(days=7)  # the worker itself keeps to the message timeout, from when it begins to stand still


@dataclass
class Arrival:
    """A message on its way."""

    since_ns: int
    at_ns: int = 0
    error: BaseException | None = None
    done: Event = field(default_factory=Event)


class Waiter:
    """Waits for the messages of one edge, one after the other."""

    def __init__(self, peer: int) -> None:
        self._queue: SimpleQueue[tuple[Work, Arrival] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=f"edge-{peer}", daemon=True)
        self._thread.start()

    def watch(self, work: Work) -> Arrival:
        arrival = Arrival(monotonic_ns())
        self._queue.put((work, arrival))
        return arrival

    def stop(self) -> None:
        """Stop after the last message; a thread that still waits for one ends with the process."""
        self._queue.put(None)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, arrival = item
            try:
                work.wait(_NO_END)
            except RuntimeError as error:
                arrival.error = error
            arrival.at_ns = monotonic_ns()
            arrival.done.set()
