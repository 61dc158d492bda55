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
SWALLOWING = ("<frozen importlib._bootstrap>", "/pydantic/")  # whose frames lose exceptions, or make others of them
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "the terminal went away"}


_raised: list[int] = []  # signals that were passed on as exceptions, in the block that is interruptible now


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
    _raised.clear()
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


def check() -> None:
    """For loops that go on for long: somewhere out of sight the exception may have been taken for another failure."""
    if _raised:
        raise Interrupted(_raised[0])


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Inside, these signals wait until the end: for moments in which something is half done. Keep it short."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in SIGNALS if signal.getsignal(number) is _raise}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for sent in came[:1]:
            signal.raise_signal(sent)


def ignore() -> None:
    """From now on: the last words are being said."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def patient() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt as ever, but not inside an import or a validation: there it
    gets lost, or comes out as another exception."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _raise_as_ever)


def _raise(number: int, frame: FrameType | None) -> None:
    if not _put_off(number, frame):
        _raised.append(number)
        raise Interrupted(number)


def _raise_as_ever(number: int, frame: FrameType | None) -> None:
    if not _put_off(number, frame):
        raise KeyboardInterrupt


def _put_off(number: int, frame: FrameType | None) -> bool:
    """Whether something is being imported or validated; the signal then comes again a moment later."""
    while frame and not any(part in frame.f_code.co_filename for part in SWALLOWING):
        frame = frame.f_back
    if frame:
        _soon(lambda *_: signal.raise_signal(number))
    return frame is not None


def _soon(call: Callable[[int, FrameType | None], None]) -> None:
    signal.signal(signal.SIGALRM, call)
    signal.setitimer(signal.ITIMER_REAL, AGAIN)


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
            _soon(again)  # something must not be interrupted now

        _soon(again)

    return hook
