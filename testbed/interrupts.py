"""Ctrl-C, SIGTERM and SIGHUP as one exception that ends a run in order. `testbed up` installs it; the command line
turns it into a message and the exit code that shells expect."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
AGAIN = 0.02  # seconds
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
    hook, alarm = sys.unraisablehook, signal.getsignal(signal.SIGALRM)
    sys.unraisablehook = _not_lost(hook)
    try:
        yield
    finally:
        sys.unraisablehook = hook
        if signal.getsignal(signal.SIGALRM) is not alarm:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, alarm)
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore() -> None:
    """From now on: the last words are being said."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _raise(number: int, frame: FrameType | None) -> None:
    raise Interrupted(number)


def _not_lost(otherwise: Callable[[sys.UnraisableHookArgs], Any]) -> Callable[[sys.UnraisableHookArgs], Any]:
    """Python drops what is raised while it finalises or forks; this exception then comes again a moment later."""

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        dropped = unraisable.exc_value
        if not isinstance(dropped, Interrupted):
            otherwise(unraisable)
            return

        def again(*_: object) -> None:
            if any(signal.getsignal(number) is _raise for number in SIGNALS):
                raise dropped
            signal.setitimer(signal.ITIMER_REAL, AGAIN)  # something must not be interrupted now

        signal.signal(signal.SIGALRM, again)
        signal.setitimer(signal.ITIMER_REAL, AGAIN)

    return hook
