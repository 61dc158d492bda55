"""Where workers are, as the controller sees it while they train, and the little it may tell them: a few shared numbers.

A file of one record per worker in the cell's directory, mapped by all; no packet, no lock, a few hundred nanoseconds.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("=qqqdd")  # step, start (monotonic ns), bytes sent, training seconds, loss
_SLOW = struct.Struct("=d")  # written by the controller: how many times longer a gradient shall take
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


class Progress:
    """The records of all workers of a cell."""

    def __init__(self, path: Path, size: int, *, create: bool = False) -> None:
        self.size = size
        if create:
            path.write_bytes(b"".join(_blank() for _ in range(size)))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _STRIDE * size)

    def put(self, rank: int, where: Where) -> None:
        record = (where.step, where.start_ns, where.bytes_sent, where.seconds, where.loss)
        _RECORD.pack_into(self._map, _STRIDE * rank, *record)

    def get(self, rank: int) -> Where:
        return Where(*_RECORD.unpack_from(self._map, _STRIDE * rank))

    def all(self) -> list[Where]:
        return [self.get(rank) for rank in range(self.size)]

    def set_slow(self, rank: int, factor: float) -> None:
        _SLOW.pack_into(self._map, _STRIDE * rank + _SLOW_AT, factor)

    def slow(self, rank: int) -> float:
        factor: float = _SLOW.unpack_from(self._map, _STRIDE * rank + _SLOW_AT)[0]
        return factor


def _blank() -> bytes:
    record = _RECORD.pack(-1, 0, 0, 0.0, 0.0).ljust(_SLOW_AT, b"\0")
    return (record + _SLOW.pack(1.0)).ljust(_STRIDE, b"\0")
