"""Process-id namespaces: a worker sees, signals and traces only processes it has started, and they end with it.

Each has its own init, a shell that waits for this process to end. If the worker were the first process, the kernel
would ignore signals it sends to itself, and a program could not abort. The fork server forks workers into these.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from testbed.network.namespaces import setns, unshare

CLONE_NEWPID = 0x20000000
_INIT = ("/bin/sh", "-c", "read _")  # until the pipe on its standard input closes, with us at the latest


class PidSpace:
    """One namespace, held by its init."""

    def __init__(self) -> None:
        reading, self._held = os.pipe()
        try:
            actions = [(os.POSIX_SPAWN_DUP2, reading, 0)]
            self._init = os.posix_spawn(_INIT[0], _INIT, os.environ, file_actions=actions)
        except BaseException:
            os.close(self._held)
            raise
        finally:
            os.close(reading)

    def close(self) -> None:
        """End all that is in it. A second call does nothing."""
        if self._held < 0:
            return
        os.close(self._held)
        self._held = -1
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._init, signal.SIGKILL)
            os.waitpid(self._init, 0)


class _Nothing:
    """Stands in where this kernel does not let us have one."""

    def close(self) -> None:
        return


class PidSpaces:
    """Makes namespaces; `shortcoming` says why the last one could not be made."""

    shortcoming = ""

    @contextmanager
    def __call__(self) -> Iterator[PidSpace | _Nothing]:
        """Put whatever is forked meanwhile into a new namespace."""
        own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        try:
            try:
                unshare(CLONE_NEWPID)
            except OSError as error:
                self.shortcoming = f"the worker sees other processes: {error.strerror}"
                yield _Nothing()
                return
            try:
                yield PidSpace()
            finally:
                setns(own, CLONE_NEWPID)
        finally:
            os.close(own)
