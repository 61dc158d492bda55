"""Waits for something that may take long on a busy machine: as long as it shows signs of life, but not for ever."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from testbed.network.processes import cpu_seconds

MOST_SECONDS = 300.0  # in all, however alive it seems
LIVELY = 0.01  # share of a processor: what takes less does not get on
LOOK_SECONDS = 0.1  # between looks at whether it lives


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


F = TypeVar("F", bound="int | _HasFileno")


def readable(files: Iterable[F], seconds: float | None = None) -> list[F]:
    """Return the descriptors that can be read (or have ended), after so many seconds at most. Not select(2), which
    takes no descriptor above 1023: with some hundred workers there are higher ones."""
    poll = select.poll()
    known: dict[int, F] = {}
    for file in files:
        number = file if isinstance(file, int) else file.fileno()
        known[number] = file
        poll.register(number, select.POLLIN)
    ready = poll.poll(None if seconds is None else 1000 * seconds)
    return [known[number] for number, _ in ready]


class Patience:
    """Expires after so many seconds without a sign of life, and after MOST_SECONDS in any case."""

    def __init__(
        self, seconds: float, cpu: Callable[[], float], most: float | None = None, lively: float = LIVELY
    ) -> None:
        """`cpu`: processor time used so far by what is waited for. Growth by the share `lively` of `seconds` is a sign
        of life."""
        self.seconds, self._cpu, self._enough = seconds, cpu, lively * seconds
        self._end = time.monotonic() + max(seconds, MOST_SECONDS if most is None else most)
        self.extended = False
        self._since = self._looked = time.monotonic()
        self._used = cpu()

    @property
    def left(self) -> float:
        """Return the seconds left; 0 or less: expired."""
        now = time.monotonic()
        if now >= self._looked + LOOK_SECONDS:
            self._looked = now
            if self._cpu() - self._used >= self._enough:
                self.sign()
        return min(self._since + self.seconds, self._end) - now

    def sign(self) -> None:
        """Note a sign of life."""
        self.extended = True
        self._since, self._used = time.monotonic(), self._cpu()

    def wait_for(self, peer: socket.socket) -> bool:
        """Wait until there is something to read; False: expired."""
        while (left := self.left) > 0:
            if readable([peer], min(left, 1.0)):
                return True
        return bool(readable([peer], 0.0))

    def __str__(self) -> str:
        return f"{self.seconds:g} s" + (" after its last sign of life" if self.extended else "")


def cpu_of(pids: Callable[[], Iterable[int]]) -> Callable[[], float]:
    """Return the processor time of processes that come and go; those that have ended no longer count."""
    return lambda: sum(map(cpu_seconds, pids()))
