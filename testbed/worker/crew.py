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
from typing import Any, Generic, Protocol, TypeVar

from testbed.errors import TestbedError, TrainingError
from testbed.worker.transport import ALL, LeftBehindError, PeerLostError

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


MayLose = Callable[[int, str], bool]


def run_forked(
    calls: Sequence[Callable[[], T]],
    names: Sequence[str] | None = None,
    *,
    started: Callable[[list[int]], None] | None = None,
    may_lose: MayLose | None = None,
) -> list[T]:
    """The results of the calls, each made in a process of its own. Where one fails the others are ended and the
    failure that explains the rest is raised. `started` gets the process ids. `may_lose` is asked with the number of a
    process that died, and how: True lets the others go on, and the dead one's result is missing from the list."""
    with Crew(calls, names, may_lose=may_lose) as crew:
        if started:
            started(crew.pids)
        while not crew.over:
            crew.wait()
    return crew.results()


class Crew(Generic[T]):
    """The same as a thing to look after meanwhile: who has died can be started again."""

    def __init__(
        self, calls: Sequence[Callable[[], T]], names: Sequence[str] | None = None, *, may_lose: MayLose | None = None
    ) -> None:
        if threading.active_count() > 1:
            raise TrainingError(
                "workers are forked, which is unsafe once this process has threads",
                hint="call it from the main thread before any other is started, or use the command line",
            )
        self._calls, self._may_lose = calls, may_lose
        self._names = names or [f"w{index}" for index in range(len(calls))]
        self._members: list[_Member[T]] = []
        self._end: float | None = None  # some time after the first failure

    def __enter__(self) -> Crew[T]:
        try:
            for name, call in zip(self._names, self._calls, strict=True):
                self._members.append(_fork(name, call))
        except BaseException:
            self._end_all()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_all()

    @property
    def pids(self) -> list[int]:
        return [member.process.pid or 0 for member in self._members]

    @property
    def over(self) -> bool:
        """All have ended, or one has failed and the others had time to say what they know."""
        return all(member.heard for member in self._members) or (self._end is not None and monotonic() >= self._end)

    def wait(self, seconds: float | None = None, also: Sequence[Any] = ()) -> list[Any]:
        """Until something is heard of a worker or from what else is given (anything with a descriptor), or for so many
        seconds; those of `also` that have something to say."""
        waiting: dict[Any, _Member[T]] = {member.reports: member for member in self._members if not member.heard}
        times = [seconds, None if self._end is None else max(0.0, self._end - monotonic())]
        ready = wait([*waiting, *also], min((time for time in times if time is not None), default=None))
        for reports, member in waiting.items():
            if reports in ready:
                self._hear(member)
        return [one for one in also if one in ready]

    def restart(self, index: int, call: Callable[[], T]) -> int | None:
        """Start one again that was lost (or is about to be: it was killed); its process id. None: the others do not go
        on without it, so it is of no use."""
        member = self._members[index]
        if not member.heard:
            self._hear(member)
        if not member.lost or self._end is not None:
            return None
        member.reports.close()
        member.process.join()
        self._members[index] = _fork(member.name, call)
        return self.pids[index]

    def results(self) -> list[T]:
        """Of all that were not lost; raises what explains a failure."""
        members = self._members
        if failed := [member for member in members if member.error and not member.lost]:
            raise explanation(failed, members)
        if all(member.lost for member in members):
            raise explanation([max(members, key=lambda member: member.heard)], members)  # the others could go on
        return [member.result for member in members if not member.lost]  # type: ignore[misc]  # each has its result

    def _hear(self, member: _Member[T]) -> None:
        died = _hear(member)
        if died and self._may_lose:
            member.lost = self._may_lose(self._members.index(member), died)
        if member.error and not member.lost and self._end is None:
            self._end = monotonic() + GRACE

    def _end_all(self) -> None:
        for member in self._members:
            member.process.kill()
            member.process.join()
            member.reports.close()


def _fork(name: str, call: Callable[[], T]) -> _Member[T]:
    context = multiprocessing.get_context("fork")
    reports, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(call, name, theirs, os.getpid()), name=name)
    process.start()
    theirs.close()
    return _Member(name, process, reports)


class Ended(Protocol):
    """A worker of which something was heard, or not."""

    name: str
    error: TestbedError | None
    heard: float  # when it was over, on the monotonic clock; 0: not yet


def explanation(failed: Sequence[Ended], members: Sequence[Ended]) -> TestbedError:
    """The failure that explains the others. A lost peer is what others notice of a failure: the failure itself says
    more. Where there is only silence, the silent one is missed by those who wait for it, and they by others."""

    def explains(member: Ended) -> tuple[int, float]:
        error = member.error
        if not isinstance(error, PeerLostError):
            return 0, member.heard
        missed_one_spoke = error.peer != ALL and members[error.peer].heard > 0
        return (2 if missed_one_spoke else 1), member.heard

    root = (failed[0] if len(failed) == 1 else min(failed, key=explains)).error  # alone: its peers may be elsewhere
    assert root is not None
    silent = [member.name for member in members if not member.heard]
    if isinstance(root, PeerLostError) and root.peer == ALL and silent:
        root.args = (f"{root}; not a word from {', '.join(silent)}",)
    return root


def _hear(member: _Member[T]) -> str:
    """What it has to say; if it died without a word, or was left behind, how."""
    member.heard = monotonic()
    try:
        succeeded, content = member.reports.recv()
    except (EOFError, OSError):  # OSError: in the middle of its report
        member.process.join()
        how = _how(member.process.exitcode or 0)
        member.error = TrainingError(f"{member.name} {how}", hint=_hint(member.name, member.process.exitcode or 0))
        return how
    if succeeded:
        member.result = content
    else:
        member.error = content
        if isinstance(content, LeftBehindError):
            return str(content).removeprefix(f"{member.name}: ")
    return ""


def _how(exit_code: int) -> str:
    return f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _hint(name: str, exit_code: int) -> str:
    """The kernel kills what has no memory left; everything else a worker does itself."""
    if exit_code == -signal.SIGKILL:
        return "out of memory, or ended by somebody? The kernel's log may tell (dmesg)"
    return f"testbed logs RUN {name} shows what it said last"


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
