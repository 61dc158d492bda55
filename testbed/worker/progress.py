"""Where workers are, as the controller sees it while they train, and the little it may tell them: a few shared numbers.

A file of one record per worker in the cell's directory, mapped by all; no packet, no lock, a few hundred nanoseconds.
Where a worker comes back, this is also where the controller and the workers concerned agree on the step (rejoins.py and
worker/rejoin.py).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_RECORD = struct.Struct("=qqqdd")  # step, start (monotonic ns), bytes sent, training seconds, loss
_SLOW = struct.Struct("=d")  # written by the controller: how many times longer a gradient shall take
_NOTICE = struct.Struct("=qqqq")  # phase, rank, life, step; written by the controller, for all
_NUMBER = struct.Struct("=q")  # of the notice, before it
_ANSWER = struct.Struct("=qqqqq")  # a worker's: ready, agreed, here, done, bytes
_VERDICT = struct.Struct("=qq")  # the controller's on this worker, behind its answer: present, refused
_STRIDE = 64
_SLOW_AT = 48


@dataclass(frozen=True)
class Where:
    """One worker at one moment."""

    step: int  # steps done; −1: not yet begun
    start_ns: int  # monotonic clock at the first step; 0: not yet begun
    bytes_sent: int
    seconds: float  # on the training clock
    loss: float


class Phase(IntEnum):
    """Of a worker's coming back."""

    NOTHING = 0  # nobody is about to
    PROPOSED = 1  # its neighbours are asked to meet it at the beginning of a step
    GO = 2  # all are there
    CLOSED = 3  # nobody will be taken back any more


@dataclass(frozen=True)
class Notice:
    """What the controller tells all workers. `number` grows with every notice."""

    number: int = 0
    phase: Phase = Phase.NOTHING
    rank: int = 0  # who comes back
    life: int = 0
    step: int = 0  # before which it does


@dataclass(frozen=True)
class Answer:
    """What a worker says to notices, by their numbers, or about its own coming back."""

    ready: int = 0  # the life in which it waits to be taken back
    agreed: int = 0  # to be there
    here: int = 0  # it is, and waits
    done: int = 0  # connected again, or given up
    nbytes: int = 0  # moved for its own coming back


class Progress:
    """The records of all workers of a cell."""

    def __init__(self, path: Path, size: int, *, create: bool = False) -> None:
        self.size = size
        if create:
            path.write_bytes(b"".join(_blank() for _ in range(size)) + bytes(_STRIDE * (size + 1)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _STRIDE * (2 * size + 1))

    def put(self, rank: int, where: Where) -> None:
        record = (where.step, where.start_ns, where.bytes_sent, where.seconds, where.loss)
        self._write(_STRIDE * rank, _RECORD.pack(*record))

    def get(self, rank: int) -> Where:
        return Where(*_RECORD.unpack_from(self._map, _STRIDE * rank))

    def all(self) -> list[Where]:
        return [self.get(rank) for rank in range(self.size)]

    def set_slow(self, rank: int, factor: float) -> None:
        self._write(_STRIDE * rank + _SLOW_AT, _SLOW.pack(factor))

    def slow(self, rank: int) -> float:
        factor: float = _SLOW.unpack_from(self._map, _STRIDE * rank + _SLOW_AT)[0]
        return factor

    def notice(self) -> Notice:
        """The last one; read again if the controller was just writing."""
        while True:
            (number,) = _NUMBER.unpack_from(self._map, self._notice_at)
            phase, rank, life, step = _NOTICE.unpack_from(self._map, self._notice_at + _NUMBER.size)
            if number >= 0 and _NUMBER.unpack_from(self._map, self._notice_at) == (number,):
                return Notice(number, Phase(phase), rank, life, step)

    @property
    def notice_number(self) -> int:
        """Whether there is a new one can be asked at every step."""
        number: int = _NUMBER.unpack_from(self._map, self._notice_at)[0]
        return number

    def put_notice(self, notice: Notice) -> None:
        fields = (notice.phase, notice.rank, notice.life, notice.step)
        self._write(self._notice_at, _NUMBER.pack(-1))
        self._write(self._notice_at + _NUMBER.size, _NOTICE.pack(*fields))
        self._write(self._notice_at, _NUMBER.pack(notice.number))

    def answer(self, rank: int) -> Answer:
        return Answer(*_ANSWER.unpack_from(self._map, self._answer_at(rank)))

    def put_answer(self, rank: int, answer: Answer) -> None:
        fields = (answer.ready, answer.agreed, answer.here, answer.done, answer.nbytes)
        self._write(self._answer_at(rank), _ANSWER.pack(*fields))

    def present(self, number: int) -> list[int]:
        """Who takes part in what this notice announces, in rank order."""
        return [rank for rank in range(self.size) if self._verdict(rank)[0] == number]

    def set_present(self, rank: int, number: int) -> None:
        self._write(self._answer_at(rank) + _ANSWER.size, _VERDICT.pack(number, self._verdict(rank)[1]))

    def refused(self, rank: int) -> int:
        """The last life of this worker that cannot be taken back."""
        return self._verdict(rank)[1]

    def refuse(self, rank: int, life: int) -> None:
        self._write(self._answer_at(rank) + _ANSWER.size, _VERDICT.pack(self._verdict(rank)[0], life))

    def _write(self, at: int, content: bytes) -> None:
        """In one copy; struct's own pack_into would show zeros to others for a moment."""
        self._map[at : at + len(content)] = content

    @property
    def _notice_at(self) -> int:
        return _STRIDE * self.size

    def _answer_at(self, rank: int) -> int:
        return _STRIDE * (self.size + 1 + rank)

    def _verdict(self, rank: int) -> tuple[int, int]:
        present, refused = _VERDICT.unpack_from(self._map, self._answer_at(rank) + _ANSWER.size)
        return present, refused


def _blank() -> bytes:
    record = _RECORD.pack(-1, 0, 0, 0.0, 0.0).ljust(_SLOW_AT, b"\0")
    return (record + _SLOW.pack(1.0)).ljust(_STRIDE, b"\0")
