"""The workers' progress as the controller sees it while they train, and the little it tells them: a few shared numbers.

Two files, no packet, no lock, a few hundred nanoseconds. Workers write the *records*, in the directory lent to them:
the controller reads these through the descriptor it made, never maps them (a worker that truncates a mapped file ends
its readers), and rejects numbers that make no sense. The controller writes the *orders*, which workers can only read.
Where a worker rejoins, this is also where the controller and the workers concerned agree on the step
(run/rejoin_coordinator.py and worker/rejoin.py).
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass, replace
from enum import IntEnum
from math import isfinite
from pathlib import Path

_RECORD = struct.Struct("=qqqdd")  # step, start (monotonic ns), bytes sent, training seconds, loss
_ANSWER = struct.Struct("=qqqqq")  # a worker's: ready, agreed, here, done, bytes
_ANSWER_AT = 64  # in the stride of a worker's record
_STRIDE = 128

_SLOW = struct.Struct("=d")  # how many times longer a gradient shall take
_VERDICT = struct.Struct("=qq")  # on this worker, behind it: present, refused
_NOTICE = struct.Struct("=qqqq")  # phase, rank, life, step; for all
_NUMBER = struct.Struct("=q")  # of the notice, before it
_ORDER_STRIDE = 64
_MOST = 1 << 62  # steps, bytes: never reached


@dataclass(frozen=True)
class Where:
    """One worker's progress at one moment."""

    step: int  # steps done; −1: not yet begun
    start_ns: int  # monotonic clock at the first step; 0: not yet begun
    bytes_sent: int
    seconds: float  # on the training clock
    loss: float


class Phase(IntEnum):
    """The phase of a worker's rejoin."""

    NOTHING = 0  # no rejoin is under way
    PROPOSED = 1  # its neighbours are asked to meet it at the beginning of a step
    GO = 2  # all are there
    CLOSED = 3  # no worker will be taken back any more


@dataclass(frozen=True)
class Notice:
    """What the controller tells all workers. `number` grows with every notice."""

    number: int = 0
    phase: Phase = Phase.NOTHING
    rank: int = 0  # the worker that rejoins
    life: int = 0
    step: int = 0  # before which it does


@dataclass(frozen=True)
class Answer:
    """A worker's answer to notices, by their numbers, or about its own rejoin."""

    ready: int = 0  # the life in which it waits to be taken back
    agreed: int = 0  # to be there
    here: int = 0  # it is, and waits
    done: int = 0  # connected again, or given up
    nbytes: int = 0  # moved for its own coming back


def orders(news: Path) -> Path:
    """Return the file of the orders, in the directory that the controller writes and workers read."""
    return news / "orders"


class Progress:
    """A worker's view: it writes its own record and answer, and reads the controller's orders."""

    def __init__(self, records: Path, orders: Path, size: int) -> None:
        self.size = size
        with records.open("r+b") as file:
            self._records = mmap.mmap(file.fileno(), _STRIDE * size)
        with orders.open("rb") as file:
            self._orders = mmap.mmap(file.fileno(), _ORDER_STRIDE * (size + 1), access=mmap.ACCESS_READ)

    def put(self, rank: int, where: Where) -> None:
        record = (where.step, where.start_ns, where.bytes_sent, where.seconds, where.loss)
        _write(self._records, _STRIDE * rank, _RECORD.pack(*record))

    def get(self, rank: int) -> Where:
        return Where(*_RECORD.unpack(self._record(rank, 0, _RECORD.size)))

    def put_answer(self, rank: int, answer: Answer) -> None:
        fields = (answer.ready, answer.agreed, answer.here, answer.done, answer.nbytes)
        _write(self._records, _STRIDE * rank + _ANSWER_AT, _ANSWER.pack(*fields))

    def answer(self, rank: int) -> Answer:
        return Answer(*_ANSWER.unpack(self._record(rank, _ANSWER_AT, _ANSWER.size)))

    def slow(self, rank: int) -> float:
        factor: float = _SLOW.unpack_from(self._orders, self._order_at(rank))[0]
        return factor

    def notice(self) -> Notice:
        """Return the last notice; read again if the controller was just writing."""
        while True:
            (number,) = _NUMBER.unpack_from(self._orders, 0)
            phase, rank, life, step = _NOTICE.unpack_from(self._orders, _NUMBER.size)
            if number >= 0 and _NUMBER.unpack_from(self._orders, 0) == (number,):
                return Notice(number, Phase(phase), rank, life, step)

    @property
    def notice_number(self) -> int:
        """Return the last notice's number: cheap enough to look for a new one at every step."""
        number: int = _NUMBER.unpack_from(self._orders, 0)[0]
        return number

    def present(self, number: int) -> list[int]:
        """Return the workers that take part in what this notice announces, in rank order."""
        return [rank for rank in range(self.size) if self._verdict(rank)[0] == number]

    def refused(self, rank: int) -> int:
        """Return the last life of this worker that cannot be taken back."""
        return self._verdict(rank)[1]

    def _record(self, rank: int, offset: int, count: int) -> bytes:
        at = _STRIDE * rank + offset
        return self._records[at : at + count]

    def _order_at(self, rank: int) -> int:
        return _ORDER_STRIDE * (1 + rank)

    def _verdict(self, rank: int) -> tuple[int, int]:
        present, refused = _VERDICT.unpack_from(self._orders, self._order_at(rank) + _SLOW.size)
        return present, refused


class Board(Progress):
    """The controller's view: it makes both files before workers start, and treats what they write as hostile."""

    def __init__(self, records: Path, orders: Path, size: int) -> None:
        self.size = size
        orders.write_bytes(bytes(_ORDER_STRIDE) + _SLOW.pack(1.0).ljust(_ORDER_STRIDE, b"\0") * size)
        with orders.open("r+b") as file:
            self._orders = mmap.mmap(file.fileno(), _ORDER_STRIDE * (size + 1))
        self._file = _create(records)
        os.write(self._file, _BLANK * size)

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def lend(self, user: int, group: int) -> None:
        """Let this user write the records, though another one made them."""
        os.fchown(self._file, user, group)

    def get(self, rank: int) -> Where:
        return _believed(super().get(rank))

    def answer(self, rank: int) -> Answer:
        told = super().answer(rank)
        return replace(told, nbytes=min(max(told.nbytes, 0), _MOST))

    def all(self) -> list[Where]:
        return [self.get(rank) for rank in range(self.size)]

    def set_slow(self, rank: int, factor: float) -> None:
        _write(self._orders, self._order_at(rank), _SLOW.pack(factor))

    def put_notice(self, notice: Notice) -> None:
        fields = (notice.phase, notice.rank, notice.life, notice.step)
        _write(self._orders, 0, _NUMBER.pack(-1))
        _write(self._orders, _NUMBER.size, _NOTICE.pack(*fields))
        _write(self._orders, 0, _NUMBER.pack(notice.number))

    def set_present(self, rank: int, number: int) -> None:
        self._set_verdict(rank, number, self._verdict(rank)[1])

    def refuse(self, rank: int, life: int) -> None:
        self._set_verdict(rank, self._verdict(rank)[0], life)

    def _set_verdict(self, rank: int, present: int, refused: int) -> None:
        _write(self._orders, self._order_at(rank) + _SLOW.size, _VERDICT.pack(present, refused))

    def _record(self, rank: int, offset: int, count: int) -> bytes:
        return _read(self._file, rank, offset, count)


class Onlooker:
    """The records alone, for the process that runs the workers and needs to know how far one had come when it died."""

    def __init__(self, records: Path) -> None:
        self._file = os.open(records, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)

    def get(self, rank: int) -> Where:
        return _believed(Where(*_RECORD.unpack(_read(self._file, rank, 0, _RECORD.size))))


_BLANK = _RECORD.pack(-1, 0, 0, 0.0, 0.0).ljust(_STRIDE, b"\0")


def _create(path: Path) -> int:
    """Create a file of our own, never use one that already exists."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)


def _read(file: int, rank: int, offset: int, count: int) -> bytes:
    """Read part of a worker's record; its initial value where the file has been cut short."""
    content = os.pread(file, count, _STRIDE * rank + offset)
    return content if len(content) == count else _BLANK[offset : offset + count]


def _believed(where: Where) -> Where:
    """Return the record without impossible values: training that began in the future, negative steps, endless times."""
    return Where(
        step=min(max(where.step, -1), _MOST),
        start_ns=where.start_ns if 0 <= where.start_ns <= time.monotonic_ns() + 1_000_000_000 else 0,
        bytes_sent=min(max(where.bytes_sent, 0), _MOST),
        seconds=where.seconds if isfinite(where.seconds) and where.seconds >= 0 else 0.0,
        loss=where.loss,
    )


def _write(target: mmap.mmap, at: int, content: bytes) -> None:
    """Write in one copy; struct's own pack_into would show zeros to others for a moment."""
    target[at : at + len(content)] = content
