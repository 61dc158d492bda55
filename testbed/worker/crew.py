"""Worker processes forked from one that has imported torch already: fast to start, never left behind.

`run_forked` is how local training, benches and tests start their workers; a runtime can enter namespaces in the calls.
Where one of them fails, the failure that explains the others' is told.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from time import monotonic
from typing import Any, Generic, TypeVar

from testbed.errors import TestbedError, TrainingError
from testbed.worker.transport import ALL, PeerLostError

T = TypeVar("T")

GRACE = 2.0  # seconds for the other workers to say what they know after the first has failed
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29


@dataclass
class _Member(Generic[T]):
    """One forked worker."""

    name: str
    process: ForkProcess
    reports: Connection
    result: T | None = None
    error: TestbedError | None = None
    lost: bool = False  # it died, and the others go on
    heard: float = 0.0  # when it was over


def run_forked(
    calls: Sequence[Callable[[], T]],
    names: Sequence[str] | None = None,
    *,
    started: Callable[[list[int]], None] | None = None,
    may_lose: Callable[[int, str], bool] | None = None,
) -> list[T]:
    """The results of the calls, each made in a process of its own. Where one fails the others are ended and the
    failure that explains the rest is raised. `started` gets the process ids. `may_lose` is asked with the number of a
    process that died, and how: True lets the others go on, and the dead one's result is missing from the list."""
    if threading.active_count() > 1:
        raise TrainingError(
            "workers are forked, which is unsafe once this process has threads",
            hint="call it from the main thread before any other is started, or use the command line",
        )
    context = multiprocessing.get_context("fork")
    members: list[_Member[T]] = []
    try:
        for index, call in enumerate(calls):
            reports, theirs = context.Pipe(duplex=False)
            name = names[index] if names else f"w{index}"
            process = context.Process(target=_child, args=(call, name, theirs, os.getpid()), name=name)
            process.start()
            theirs.close()
            members.append(_Member(name, process, reports))
        if started:
            started([member.process.pid or 0 for member in members])
        _collect(members, may_lose)
    finally:
        for member in members:
            member.process.kill()
            member.process.join()
            member.reports.close()
    if failed := [member for member in members if member.error and not member.lost]:
        raise _root(failed, members)
    if all(member.lost for member in members):
        raise _root(members, members)
    return [member.result for member in members if not member.lost]  # type: ignore[misc]  # each has its result


def _root(failed: Sequence[_Member[T]], members: Sequence[_Member[T]]) -> TestbedError:
    """The failure that explains the others. A lost peer is what others notice of a failure: the failure itself says
    more. Where there is only silence, the silent one is missed by those who wait for it, and they by others."""

    def explains(member: _Member[T]) -> tuple[int, float]:
        error = member.error
        if not isinstance(error, PeerLostError):
            return 0, member.heard
        missed_one_spoke = error.peer != ALL and members[error.peer].heard > 0
        return (2 if missed_one_spoke else 1), member.heard

    root = min(failed, key=explains).error
    assert root is not None
    silent = [member.name for member in members if not member.heard]
    if isinstance(root, PeerLostError) and root.peer == ALL and silent:
        root.args = (f"{root}; not a word from {', '.join(silent)}",)
    return root


def _collect(members: list[_Member[T]], may_lose: Callable[[int, str], bool] | None) -> None:
    """Until all are over, or some time after the first failure."""
    end: float | None = None
    while waiting := {member.reports: member for member in members if not member.heard}:
        left = None if end is None else end - monotonic()
        if left is not None and left <= 0:
            return
        for reports in wait(list(waiting), left):
            member = waiting[reports]  # type: ignore[index]  # wait returns what it was given
            died = _hear(member)
            if died and may_lose:
                member.lost = may_lose(members.index(member), died)
            if member.error and not member.lost and end is None:
                end = monotonic() + GRACE


def _hear(member: _Member[T]) -> str:
    """What it has to say; if it died without a word, how."""
    member.heard = monotonic()
    try:
        succeeded, content = member.reports.recv()
    except (EOFError, OSError):  # OSError: in the middle of its report
        member.process.join()
        how = _how(member.process.exitcode or 0)
        member.error = TrainingError(
            f"{member.name} {how}", hint="out of memory, or ended by somebody? The kernel's log may tell (dmesg)"
        )
        return how
    if succeeded:
        member.result = content
    else:
        member.error = content
    return ""


def _how(exit_code: int) -> str:
    return f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _child(call: Callable[[], Any], name: str, reports: Connection, parent: int) -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody outlives the one who started it
    if os.getppid() != parent:  # who had ended before we asked
        os._exit(1)
    _prctl(PR_SET_TIMERSLACK, 1)  # sleeps end on time: padded gradients are exact to some 10 µs
    try:
        content: tuple[bool, object] = (True, call())
    except TestbedError as error:
        if not str(error).startswith(f"{name}:"):
            error.args = (f"{name}: {error}",)
        content = (False, error)
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent must hear of it
        traceback.print_exc(file=sys.stderr)
        content = (False, TrainingError(f"{name}: {type(error).__name__}: {error}", hint="the traceback is above"))
    reports.send(content)
    reports.close()


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
