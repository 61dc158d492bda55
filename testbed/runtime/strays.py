"""Ends processes that outlive the workers that started them: the process that forked the workers inherits them; those
of killed runs carry a mark in their environment. The fork server and `testbed down --all` call it."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from testbed.network.processes import descendants
from testbed.network.state import alive, own_name

MARK = "TESTBED_CONTROLLER"  # in the environment of all that a run starts: whose it is
END_SECONDS = 5.0  # for the kernel to take a killed process apart


def marked() -> dict[str, str]:
    """Return what to add to the environment of a process whose children may outlive it."""
    return {MARK: own_name()}


def end_adopted() -> None:
    """End every descendant, repeatedly: their children become ours as they end. Nothing else may be waiting for one."""
    while found := descendants(os.getpid()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:  # all that have ended: looking for descendants takes long with many
                continue


def end(pids: Iterable[int]) -> list[int]:
    """End these processes; return those that existed."""
    ends = {}
    for pid in pids:
        with suppress(ProcessLookupError):
            ends[pid] = os.pidfd_open(pid)
    for descriptor in ends.values():
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    for descriptor in ends.values():
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.poll(1000 * END_SECONDS)
        os.close(descriptor)
    return list(ends)


def left_over() -> dict[int, str]:
    """Return the processes of runs whose controller is gone: what each is, by process id."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            whose = next((one for one in variables if one.startswith(MARK.encode() + b"=")), None)
            if whose and not alive(whose.decode(errors="replace").partition("=")[2]):
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                found[int(entry.name)] = words[:60]
    return found


def remove_leftovers() -> list[str]:
    """End what the workers of killed runs had started."""
    found = left_over()
    return [f"process {pid} ({found[pid]})" for pid in end(found)]
