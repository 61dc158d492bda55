"""Processes that join a worker's control groups."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from testbed.runtime.cgroups import Groups, join

UNLIMITED = 77


def child(groups: Groups, worker: str, work: Callable[[], Any]) -> int:
    """The exit code of a member that does this work; UNLIMITED where it was no member of all its groups."""
    pid = os.fork()
    if pid == 0:
        unlimited = join(groups.joined_by(worker))
        work()
        os._exit(UNLIMITED if unlimited else 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
