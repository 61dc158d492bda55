"""A user at a terminal, for test_shell.py."""

from __future__ import annotations

import os
import pty
import select
import sys
import time

from .examples import COMMAND

LIMIT = 60  # seconds; nothing here takes a tenth of it


class Terminal:
    """The shell in a terminal of its own."""

    def __init__(self) -> None:
        self._unread = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execv(sys.executable, [*COMMAND, "shell"])

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def sees(self, text: str) -> str:
        """Read up to a text; what comes after it is for the next look."""
        deadline = time.monotonic() + LIMIT
        while text not in self._unread:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not appear in {self._unread!r}"
            self._unread += os.read(self.fd, 4096).decode(errors="replace")
        seen, _, self._unread = self._unread.partition(text)
        return seen

    def presses_until(self, key: str, text: str) -> str:
        """A key that may come too early to be noticed is pressed again, as people do."""
        deadline = time.monotonic() + LIMIT
        while text not in self._unread:
            assert time.monotonic() < deadline, f"{text!r} did not appear in {self._unread!r}"
            self.types(key)
            while select.select([self.fd], [], [], 0.5)[0]:
                self._unread += os.read(self.fd, 4096).decode(errors="replace")
        return self.sees(text)

    def leaves(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def hangs_up(self) -> None:
        os.close(self.fd)
        if self.pid:  # a failed test
            os.waitpid(self.pid, 0)
