"""Worker processes forked from one that has imported torch already: fast to start, never left behind.

`run_forked` is how local training, benches and tests start their workers; a runtime can enter namespaces in the calls,
and gives every worker its own surroundings. Where several fail, the failure that explains the others is reported.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import pickle
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from testbed.errors import TestbedError, TrainingError, WorkerDiedError
from testbed.network.waiting import readable
from testbed.worker import reports
from testbed.worker.team import MayLose, Team

T = TypeVar("T")

PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
_LENGTH = struct.Struct("=q")  # before a report
_CHUNK = 1 << 20

Surroundings = Callable[[], AbstractContextManager["Around"]]


class Around(Protocol):
    """The surroundings that a worker is forked into; they end with it."""

    def close(self) -> None: ...


@dataclass
class _Member(Generic[T]):
    """One forked worker."""

    name: str
    process: ForkProcess
    reports: int  # the descriptor that it writes its report to
    ended: int  # a descriptor of the process, readable once it has ended: others may hold the one above
    around: Around | None = None
    said: bytearray = field(default_factory=bytearray)
    silent: bool = False  # it has closed its end, and may still live
    result: T | None = None

    @property
    def watched(self) -> list[int]:
        """Return what becomes readable when there is news of it."""
        return [self.ended] if self.silent else [self.reports, self.ended]

    def close(self) -> None:
        """End it and its surroundings."""
        self.process.kill()
        self.process.join()
        if self.around:
            self.around.close()
        os.close(self.reports)
        os.close(self.ended)


def run_forked(
    calls: Sequence[Callable[[], T]],
    names: Sequence[str] | None = None,
    *,
    started: Callable[[list[int]], None] | None = None,
    may_lose: MayLose | None = None,
) -> list[T]:
    """Return the results of the calls, each made in a process of its own. Where one fails the others are ended and the
    failure that explains the rest is raised. `started` gets the process ids. `may_lose` is called with the number of a
    process that died, and how: True lets the others go on, and the dead one's result is missing from the list."""
    with ForkedWorkers(calls, names, may_lose=may_lose) as crew:
        if started:
            started(crew.pids)
        while not crew.over:
            crew.wait()
    return crew.results()


class ForkedWorkers(Generic[T]):
    """Forked workers that can be watched, and started again when they have died."""

    def __init__(
        self,
        calls: Sequence[Callable[[], T]],
        names: Sequence[str] | None = None,
        *,
        may_lose: MayLose | None = None,
        trusted: bool = True,
        size: int | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        """`trusted`: what the calls return and raise is passed on unpickled. Else they are user code, confined: they
        return nothing, and errors arrive as plain text only. `size`: of the job, where other parts of it run
        elsewhere."""
        if threading.active_count() > 1:
            raise TrainingError(
                "workers are forked, which is unsafe once this process has threads",
                hint="call it from the main thread before any other is started, or use the command line",
            )
        self._calls, self._surroundings = calls, surroundings
        self._size = len(calls) if size is None else size
        self._trusted = trusted
        self._names = names or [f"w{index}" for index in range(len(calls))]
        self._members: list[_Member[T]] = []
        self._team = Team(self._names, may_lose)

    def __enter__(self) -> ForkedWorkers[T]:
        try:
            for name, call in zip(self._names, self._calls, strict=True):
                self._members.append(self._fork(name, call))
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
        """Whether all have ended, or one has failed and the others had time to report."""
        return self._team.over(monotonic())

    def wait(self, seconds: float | None = None, also: Sequence[Any] = ()) -> list[Any]:
        """Wait for news of a worker or of `also` (anything with a descriptor), or for so many seconds; return those of
        `also` that are readable."""
        waiting = {fd: rank for rank in self._team.working for fd in self._members[rank].watched}
        ready = wait([*waiting, *also], self._team.wait_at_most(monotonic(), seconds))
        for rank in dict.fromkeys(rank for fd, rank in waiting.items() if fd in ready):
            self._hear(rank)
        return [one for one in also if one in ready]

    def restart(self, index: int, call: Callable[[], T]) -> int | None:
        """Start a lost (or just killed) worker again; return its process id. None: the others do not go on without it,
        so it is of no use."""
        member = self._members[index]
        while index in self._team.working:
            wait(member.watched)
            self._hear(index)
        if not self._team.may_return(index):
            return None
        member.close()
        self._members[index] = self._fork(member.name, call)
        self._team.returned(index)
        return self.pids[index]

    def results(self) -> list[T]:
        """Return the results of all that were not lost; raise what explains a failure."""
        if failure := self._team.failure():
            raise failure
        known = zip(self._members, self._team.members, strict=True)
        return [member.result for member, one in known if not one.lost]  # type: ignore[misc]  # each has its result

    def _fork(self, name: str, call: Callable[[], T]) -> _Member[T]:
        context = multiprocessing.get_context("fork")
        reports, theirs = os.pipe()
        os.set_blocking(reports, False)
        own = os.pidfd_open(os.getpid())
        around = None
        try:
            with self._surroundings() if self._surroundings else nullcontext() as around:
                arguments = (call, name, theirs, own, self._trusted)
                process = context.Process(target=_child, args=arguments, name=name)
                process.start()
        except BaseException:
            os.close(reports)
            if around:
                around.close()
            raise
        finally:
            os.close(theirs)
            os.close(own)
        return _Member(name, process, reports, os.pidfd_open(process.pid or 0), around)

    def _hear(self, rank: int) -> None:
        """Read what has arrived of its report; record how it ended once that is complete or the worker has died."""
        member = self._members[rank]
        died = bool(readable([member.ended], 0.0))
        content = _report(member, sys.maxsize if self._trusted else reports.MOST_BYTES)
        if content is None and not died:
            return  # half a report: it may still come
        if died and member.around:
            member.process.join()  # first: what it was in cannot end before
            member.around.close()  # and with it what the dead one has started
        error = self._take(member, content)
        self._team.ended(rank, monotonic(), error)

    def _take(self, member: _Member[T], content: bytes | None) -> TestbedError | None:
        """Return its error, or keep its result; if it died without a report, say how."""
        if content is None:
            member.process.join()
            code = member.process.exitcode or 0
            why, hint = _how(code), _hint(member.name, code)
            return WorkerDiedError(f"{member.name} {why}", hint=hint, worker=member.name, why=why)
        if not self._trusted:
            return _told(member.name, content, self._size)
        error: TestbedError | None
        member.result, error = pickle.loads(content)  # of a process that may do all that we may
        return error

    def _end_all(self) -> None:
        for member in self._members:
            member.close()


def _report(member: _Member[Any], most: int) -> bytes | None:
    """Return the report once it is complete; nothing where it is too long."""
    try:
        while len(member.said) <= _LENGTH.size + most and not member.silent:
            content = os.read(member.reports, _CHUNK)
            member.said += content
            member.silent = not content
    except BlockingIOError:
        pass
    if len(member.said) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack_from(member.said)
    if not 0 <= length <= most:
        return b""
    content = bytes(member.said[_LENGTH.size :])
    return content if len(content) >= length else None


def _told(name: str, content: bytes, size: int) -> TestbedError | None:
    try:
        error = reports.failure(json.loads(content), size)
        if type(error) is not WorkerDiedError:  # the dead do not speak
            return error
    except (ValueError, RecursionError):
        pass
    return TrainingError(f"{name} reported something that makes no sense", hint=_hint(name, 1))


def _how(exit_code: int) -> str:
    return f"was killed by {signal.Signals(-exit_code).name}" if exit_code < 0 else f"ended with exit code {exit_code}"


def _hint(name: str, exit_code: int) -> str:
    """Suggest a cause: SIGKILL may be the kernel's, for lack of memory; everything else a worker does itself."""
    if exit_code == -signal.SIGKILL:
        return "out of memory, or ended by somebody? The kernel's log may tell (dmesg)"
    return f"testbed logs RUN {name} shows what it said last"


_kept: list[int] = []  # in a worker: the descriptors that lead to the process that forked it


def _child(call: Callable[[], Any], name: str, report: int, parent: int, trusted: bool) -> None:
    _kept[:] = [report, parent]
    die_with_parent()
    _prctl(PR_SET_TIMERSLACK, 1)  # sleeps end on time: padded gradients are exact to some 10 µs
    result, failure = None, None
    try:
        result = call()
    except TestbedError as error:
        failure = error.said_by(name)
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent must hear of it
        traceback.print_exc(file=sys.stderr)
        failure = TrainingError(f"{type(error).__name__}: {error}", hint="the traceback is above").said_by(name)
    content = pickle.dumps((result, failure)) if trusted else json.dumps(reports.of(failure)).encode()
    with os.fdopen(report, "wb") as file:
        file.write(_LENGTH.pack(len(content)) + content)


def die_with_parent() -> None:
    """Make a worker end with the process that started it. Call again after becoming another user, which undoes it."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _, parent = _kept
    if readable([parent], 0.0):  # it had ended before we asked
        os._exit(1)


def close_inherited() -> None:
    """Close, in a worker, every descriptor except the standard ones and those that this module needs."""
    kept = sorted([2, *_kept])
    for below, above in zip(kept, [*kept[1:], 1 << 20], strict=True):
        os.closerange(below + 1, above)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
