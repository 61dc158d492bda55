"""Worker processes forked from one that has imported torch already: fast to start, never left behind.

`run_forked` is how local training, benches and tests start their workers; a runtime can enter namespaces in the calls.
"""

from __future__ import annotations

import ctypes
import multiprocessing
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
from testbed.worker.transport import PeerLostError

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
    heard: float = 0.0  # when it was over


def run_forked(
    calls: Sequence[Callable[[], T]],
    names: Sequence[str] | None = None,
    *,
    started: Callable[[list[int]], None] | None = None,
) -> list[T]:
    """The results of the calls, each made in a process of its own. Where one fails the others are ended and the
    failure that explains the rest is raised. `started` gets the process ids."""
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
            process = context.Process(target=_child, args=(call, name, theirs), name=name)
            process.start()
            theirs.close()
            members.append(_Member(name, process, reports))
        if started:
            started([member.process.pid or 0 for member in members])
        _collect(members)
    finally:
        for member in members:
            member.process.kill()
            member.process.join()
            member.reports.close()
    failed = [member for member in members if member.error]
    if failed:
        # a lost peer is what others notice of a failure; the failure itself says more
        root = min(failed, key=lambda member: (isinstance(member.error, PeerLostError), member.heard))
        assert root.error is not None
        raise root.error
    return [member.result for member in members]  # type: ignore[misc]  # no error: each has its result


def _collect(members: list[_Member[T]]) -> None:
    """Until all are over, or some time after the first failure."""
    end: float | None = None
    while waiting := {member.reports: member for member in members if not member.heard}:
        left = None if end is None else end - monotonic()
        if left is not None and left <= 0:
            return
        for reports in wait(list(waiting), left):
            member = waiting[reports]  # type: ignore[index]  # wait returns what it was given
            _hear(member)
            if member.error and end is None:
                end = monotonic() + GRACE


def _hear(member: _Member[T]) -> None:
    member.heard = monotonic()
    try:
        succeeded, content = member.reports.recv()
    except EOFError:
        member.process.join()
        member.error = _died(member.name, member.process.exitcode or 0)
        return
    if succeeded:
        member.result = content
    else:
        member.error = content


def _died(name: str, exit_code: int) -> TrainingError:
    how = f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"
    return TrainingError(f"{name} {how}", hint="out of memory, or ended by somebody? The kernel's log may tell (dmesg)")


def _child(call: Callable[[], Any], name: str, reports: Connection) -> None:
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody outlives the one who started it
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
