"""Ctrl-C, SIGTERM and SIGHUP as one exception that ends a run in order. `testbed up` installs it; the command line
turns it into a message and the exit code that shells expect."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal went away"}


class Interrupted(BaseException):
    """Somebody wants the run to end. No Exception: nothing that handles failures shall handle this."""

    def __init__(self, number: int) -> None:
        super().__init__(WORDS[signal.Signals(number)])
        self.exit_code = 128 + number
        self.hint: str | None = None


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside, these signals raise Interrupted in the main thread. One that is ignored (nohup) stays ignored."""
    before: dict[signal.Signals, Any] = {}
    for number in SIGNALS:
        handler = signal.getsignal(number)
        if handler is not signal.SIG_IGN:
            before[number] = handler
            signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """From now on: the last words are being said."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)
