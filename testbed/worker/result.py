"""The result of a worker's training: numbers, metrics, spans, the final model. The loop makes it, others read it.

The worker writes it into the directory lent to it (parcel.py); the controller reads it as hostile input (claims.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import TrainingError
from testbed.safe_files import DamagedError
from testbed.worker import parcel
from testbed.worker.job import Job
from testbed.worker.snapshots import Metric
from testbed.worker.trace import SPAN, to_arrow

_FLOATS = np.dtype("<f4")


@dataclass(frozen=True)
class JobResult:
    """One worker's part of one cell."""

    rank: int
    steps: int
    seconds: float  # on the training clock
    bytes_sent: dict[int, int]  # payload handed to the backend, by peer; −1: share of all-reduces; since it last began
    tcp_bytes_sent: int  # what the kernel counted for this process while it trained, 0 where there are no sockets
    overruns: int  # gradients that took longer than step_time
    decided: dict[str, float]  # what the method chose at run time
    warnings: list[str]
    metrics: list[Metric]
    spans: NDArray[np.void]  # dtype trace.SPAN
    x: NDArray[np.float32]  # the final model
    tcp_bytes_before: int = 0  # likewise, before training: connecting, and what the method's start exchanged
    tcp_bytes_again: int = 0  # that TCP had to send once more, before and in training
    pipelined: bool = False  # the method's messages are a ring's whose rounds overlap
    overlaps: bool = False  # the method's messages travel while the gradient is computed
    paced: dict[int, float | None] = field(default_factory=dict)  # bytes per second by peer; None: not paced
    queued: float | None = None  # seconds of training ready to run but without a processor; None: the kernel is silent

    def last(self, metric: str, worker: int | None = None) -> float | None:
        """Return the last value of a metric of this worker (or the one asked for), if this result holds one."""
        wanted = self.rank if worker is None else worker
        rows = [row for row in self.metrics if row.metric == metric and row.worker == wanted]
        return rows[-1].value if rows else None

    def write(self, directory: Path) -> None:
        """Write it, complete or not at all. Tables are made where results are collected: numpy is loaded already."""
        text = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("metrics", "spans", "x")}
        text["metrics"] = [astuple(row) for row in self.metrics]
        parcel.write(directory, f"worker.{self.rank}", text, {"spans": self.spans, "x": self.x})

    @staticmethod
    def read(
        directory: Path, rank: int, *, size: int | None = None, steps: int | None = None, numel: int | None = None
    ) -> JobResult:
        """Read what `write` wrote, checked against its cell. DamagedError where it cannot be true."""
        from testbed.worker import claims

        bounds = {"spans": claims.most_spans(size, steps), "x": numel}
        most = {name: bound for name, bound in bounds.items() if bound is not None}
        text, arrays = parcel.read(directory, f"worker.{rank}", {"spans": SPAN, "x": _FLOATS}, most)
        with claims.of(directory / f"worker.{rank}{parcel.SUFFIX}"):
            checked = claims.result(text, rank, size, steps)
            claims.check_metrics(checked["metrics"], size, steps)
            claims.check_spans(arrays["spans"], size, steps)
            if numel is not None and len(arrays["x"]) != numel:
                raise ValueError(f"a model of {len(arrays['x'])} numbers instead of {numel}")
        return JobResult(**checked, spans=arrays["spans"], x=arrays["x"])


def read_result(job: Job, steps: int, numel: int) -> JobResult:
    """Return the result of a worker that says it is done, with a model of so many numbers; TrainingError where it
    cannot be used."""
    try:
        return JobResult.read(Path(job.directory), job.rank, size=job.size, steps=steps, numel=numel)
    except DamagedError as error:
        name = job.name_of(job.rank)
        raise TrainingError(
            f"{name} left results that cannot be used: {error.path.name} {error.why}",
            hint=f"does its code write into its working directory? testbed logs RUN {name} shows what it said",
        ) from error


@contextmanager
def consistent() -> Iterator[None]:
    """Wrap what combines several workers' results: each may be valid by itself and all of them not. TrainingError where
    they do not fit together."""
    try:
        yield
    except (ValueError, ArithmeticError, LookupError) as error:
        raise TrainingError(
            f"the workers' results contradict each other: {error}",
            hint="does a method of one's own change how steps are counted or timed?",
        ) from error


def write_tables(results: Sequence[JobResult], directory: Path) -> None:
    """Write all workers' trace.parquet and metrics.parquet."""
    rows = [row for result in results for row in result.metrics]
    _write_tables(directory, {result.rank: result.spans for result in results}, rows)


def _write_tables(directory: Path, spans: Mapping[int, NDArray[np.void]], metrics: Sequence[Metric]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    traces = [to_arrow(rank, own) for rank, own in spans.items()]
    parquet.write_table(pa.concat_tables(traces), directory / "trace.parquet")
    parquet.write_table(metrics_table(metrics), directory / "metrics.parquet")


def metrics_table(metrics: Sequence[Metric]) -> Any:
    """Return a pyarrow table with a column per field of Metric."""
    import pyarrow as pa

    types = {"worker": pa.int32(), "step": pa.int32(), "bytes_sent": pa.int64()}
    names = [f.name for f in fields(Metric)]
    return pa.table({name: pa.array([getattr(row, name) for row in metrics], type=types.get(name)) for name in names})


def write_unfinished(directory: Path, rank: int, spans: NDArray[np.void], metrics: Sequence[Metric]) -> None:
    """Write what a failed worker knows. Quickly: others wait to learn why."""
    parcel.write(directory, f"unfinished.{rank}", {"metrics": [astuple(row) for row in metrics]}, {"spans": spans})


def merge_unfinished(lent: Path, cell: Path, size: int, steps: int) -> list[str]:
    """Make trace.parquet and metrics.parquet in the cell's directory from what the workers of a failed cell wrote;
    return what could not be used."""
    from testbed.worker import claims

    spans: dict[int, NDArray[np.void]] = {}
    metrics: list[Metric] = []
    damaged = []
    for rank in range(size):
        name = f"unfinished.{rank}"
        if not (lent / f"{name}{parcel.SUFFIX}").is_symlink() and not (lent / f"{name}{parcel.SUFFIX}").exists():
            continue
        try:
            text, arrays = parcel.read(lent, name, {"spans": SPAN}, {"spans": claims.most_spans(size, steps) or 0})
            with claims.of(lent / f"{name}{parcel.SUFFIX}"):
                rows = claims.metrics(text)
                claims.check_metrics(rows, size, steps)
                claims.check_spans(arrays["spans"], size, steps)
        except DamagedError as error:
            damaged.append(str(error))
            continue
        spans[rank] = arrays["spans"]
        metrics += rows
    if spans:
        _write_tables(cell, spans, metrics)
    return damaged
