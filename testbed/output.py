"""Output to terminals and pipes: untrusted text made harmless, and output that may be closed.

Workers, their methods and files of a scenario may hold any character. On its way to a terminal, what would move its
cursor, change its title or turn its text around is shown as it would be written in Python: `\\x1b[2J`.
"""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
from contextlib import suppress
from typing import Any, TextIO

import click

from testbed.errors import StorageError
from testbed.interrupts import Interrupted

# C0 but for tab and line feed, DEL, C1, and what changes the direction of text.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return the text with everything spelt out that a terminal would obey instead of showing it."""
    return _UNSEEN.sub(_spelt, text)


def _spelt(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def say(text: object, *, err: bool = False, **style: Any) -> None:
    """Print a line of untrusted text on standard output or standard error."""
    click.secho(printable(str(text)), err=err, **style)


class OutputError(StorageError):
    """Standard output can no longer be written."""

    def __init__(self, refusal: OSError, *, hint: str | None = None) -> None:
        self.unread = refusal.errno == errno.EPIPE  # `| head`: they have seen enough
        words = "nobody reads the output any more" if self.unread else f"cannot write the output: {refusal.strerror}"
        super().__init__(words, hint=hint)


class _Output(io.FileIO):
    """A descriptor that fails once: what is written after that is dropped, and Python does not complain at its exit."""

    def __init__(self, descriptor: int, *, telling: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.gone = False
        self.lost: OSError | None = None  # why wanted output is missing
        self.terminal = self.isatty()  # one that was closed does not say so any more
        self._telling = telling

    def write(self, data: Any, /) -> int:
        if not self.gone:
            try:
                return super().write(data)
            except OSError as error:
                self.gone = True
                if self._telling:
                    self._tell(error)
        return len(data)

    def _tell(self, error: OSError) -> None:
        """Report a closed terminal once: it also sends a signal, which may come later. Where that signal is ignored,
        the run goes on without a terminal."""
        if error.errno != errno.EIO or not self.terminal:
            self.lost = error
            raise OutputError(error) from error
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            raise Interrupted(signal.SIGHUP)


def guard_output() -> None:
    """Make unwritable standard output raise OutputError (or Interrupted, where the terminal was closed) once, from now
    on; unwritable standard error is ignored. A character that the terminal does not know is spelt out. OutputError
    where standard output was closed from the beginning."""
    closed = [descriptor for descriptor in (0, 1, 2) if not _is_open(descriptor)]
    for _ in closed:  # the lowest that is free is given out: else to a file of ours, which would get these words
        os.open(os.devnull, os.O_RDWR)
    sys.stdout, sys.stderr = _text(1, telling=True), _text(2, telling=False)
    if 1 in closed:
        raise OutputError(OSError(errno.EBADF, "it is closed"), hint="send it to a file, or > /dev/null")


def output_lost() -> OSError | None:
    """Flush buffered output; return why standard output could not be written, if so. Raises nothing."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if not isinstance(raw, _Output):
        return None
    with suppress(OutputError, Interrupted):
        sys.stdout.flush()
    return raw.lost


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def _text(descriptor: int, *, telling: bool) -> TextIO:
    before = sys.stdout if descriptor == 1 else sys.stderr
    raw = _Output(descriptor, telling=telling)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=before.encoding if before else "utf-8",
        errors="backslashreplace",
        line_buffering=descriptor == 2 or raw.terminal,
    )
