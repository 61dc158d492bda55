"""What a worker did when: spans on the host's monotonic clock, cheap enough to leave on. Peers and channels record in
real time; reading and writing is in scenario time.

A span costs about a microsecond: its fields are packed into one growing byte array, which is a numpy record array when
training is over.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from time import monotonic_ns
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import TrainingError

if TYPE_CHECKING:
    from testbed.worker.padding import Padding

KINDS = (
    "data",  # fetching a batch
    "compute",  # one gradient, with its padding to step_time
    "compress",
    "send",  # one message: from the hand-over to the backend until the backend has let go of it
    "receive",  # one message: from the own send of the round until it was here (in steps that are watched)
    "wait",  # the worker stood still for one peer, or for all (all-reduce, peer −1)
    "decompress",
    "mix",
    "update",
    "eval",  # the training clock stands still: snapshot, checkpoint
    "fault",  # waited until the exchange was given up
    "rejoin",  # a worker came back: connecting, and its messages (recorded as such, too)
)
WORK = ("data", "compress", "decompress", "mix", "update")  # on a processor, in the thread that opens such a span
CODES = {kind: code for code, kind in enumerate(KINDS)}
SPAN = np.dtype(
    [
        ("kind", "u1"),
        ("step", "<i4"),
        ("peer", "<i4"),  # −1: none or all
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("bytes_logical", "<i8"),  # payload handed to the backend
        ("bytes_wire", "<i8"),  # what the backend makes of it, before TCP/IP headers
    ]
)
_pack = Struct("<Biiqqqq").pack


class Trace:
    """The spans of one worker. `step` is the step they belong to."""

    def __init__(self, worker: int, slow_motion: float = 1.0) -> None:
        self.worker = worker
        self.slow_motion = slow_motion
        self.padding: Padding | None = None  # in slow motion: makes work on a processor last as long as it should
        self.step = 0
        self._packed = bytearray()

    def span(self, kind: str) -> Span:
        """Record a span: `with trace.span("mix"): …`; spans may nest."""
        try:
            code = CODES[kind]
            return Span(self, code) if self.padding is None or kind not in WORK else PaddedSpan(self, code)
        except KeyError:
            raise TrainingError(f"unknown span kind {kind!r}", hint=f"use one of: {', '.join(KINDS)}") from None

    def add(self, code: int, peer: int, start_ns: int, end_ns: int, logical: int = 0, wire: int = 0) -> None:
        """Add a completed span."""
        self._packed += _pack(code, self.step, peer, start_ns, end_ns, logical, wire)

    def clear(self) -> None:
        self._packed.clear()

    def __len__(self) -> int:
        return len(self._packed) // SPAN.itemsize

    def spans(self) -> NDArray[np.void]:
        """Return a copy as record array of dtype SPAN, in scenario time: the monotonic clock divided by the factor."""
        found = np.frombuffer(bytes(self._packed), dtype=SPAN)
        if self.slow_motion != 1:
            found = found.copy()
            for field in ("start_ns", "end_ns"):
                found[field] = np.rint(found[field] / self.slow_motion)
        return found

    def to_arrow(self) -> Any:
        return to_arrow(self.worker, self.spans())

    def write(self, path: Path) -> None:
        """Write as Parquet."""
        from pyarrow import parquet

        parquet.write_table(self.to_arrow(), path)


class Span:
    """A context manager of our own: contextlib's costs four times as much."""

    __slots__ = ("_code", "_start", "_trace")

    def __init__(self, trace: Trace, code: int) -> None:
        self._trace = trace
        self._code = code

    def __enter__(self) -> None:
        self._start = monotonic_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        trace = self._trace
        trace._packed += _pack(self._code, trace.step, -1, self._start, monotonic_ns(), 0, 0)


class PaddedSpan(Span):
    """A span of work on a processor in slow motion."""

    __slots__ = ("_block",)

    def __enter__(self) -> None:
        assert self._trace.padding is not None
        self._block = self._trace.padding.begin()
        super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None:
            self._block.end()
        super().__exit__(kind, error, where)


def to_arrow(worker: int, spans: NDArray[np.void]) -> Any:
    """Return a pyarrow table: worker, kind (as words), step, peer, start_ns, end_ns, bytes_logical, bytes_wire."""
    import pyarrow as pa  # not before the fork: only the writing process needs it

    kinds = pa.DictionaryArray.from_arrays(pa.array(spans["kind"].astype("i1")), pa.array(KINDS))
    columns = {"worker": pa.array(np.full(len(spans), worker, dtype="i4")), "kind": kinds}
    for name in SPAN.names[1:]:  # type: ignore[index]  # a record dtype has names
        columns[name] = pa.array(np.ascontiguousarray(spans[name]))
    return pa.table(columns)
