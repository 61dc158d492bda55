"""What a worker's training gave: numbers, metrics, spans, the final model. The loop makes it, others read it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.worker.snapshots import Metric
from testbed.worker.trace import to_arrow


@dataclass(frozen=True)
class JobResult:
    """One worker's part of one cell."""

    rank: int
    steps: int
    seconds: float  # on the training clock
    bytes_sent: dict[int, int]  # payload handed to the backend, by peer; −1: share of all-reduces
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
    queued: float | None = None  # seconds of training ready to run but without a processor; None: the kernel is silent

    def last(self, metric: str, worker: int | None = None) -> float | None:
        """The last value of a metric of this worker (or the one asked for), if this result holds one."""
        wanted = self.rank if worker is None else worker
        rows = [row for row in self.metrics if row.metric == metric and row.worker == wanted]
        return rows[-1].value if rows else None

    def write(self, directory: Path) -> None:
        """As worker.<rank>.npz, complete or not at all. Tables are made by who collects: numpy is loaded already."""
        text = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("metrics", "spans", "x")}
        text["metrics"] = [astuple(row) for row in self.metrics]
        _store(directory, f"worker.{self.rank}", spans=self.spans, x=self.x, text=np.array(json.dumps(text)))

    @staticmethod
    def read(directory: Path, rank: int) -> JobResult:
        """What `write` wrote."""
        with np.load(directory / f"worker.{rank}.npz") as stored:
            text = json.loads(str(stored["text"]))
            spans, x = stored["spans"], stored["x"]
        text["metrics"] = [Metric(*row) for row in text["metrics"]]
        text["bytes_sent"] = {int(peer): count for peer, count in text["bytes_sent"].items()}
        return JobResult(**text, spans=spans, x=x)


def write_tables(results: Sequence[JobResult], directory: Path) -> None:
    """All workers' trace.parquet and metrics.parquet."""
    rows = [row for result in results for row in result.metrics]
    _write_tables(directory, {result.rank: result.spans for result in results}, rows)


def _write_tables(directory: Path, spans: Mapping[int, NDArray[np.void]], metrics: Sequence[Metric]) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    traces = [to_arrow(rank, own) for rank, own in spans.items()]
    parquet.write_table(pa.concat_tables(traces), directory / "trace.parquet")
    parquet.write_table(metrics_table(metrics), directory / "metrics.parquet")


def metrics_table(metrics: Sequence[Metric]) -> Any:
    """A pyarrow table with a column per field of Metric."""
    import pyarrow as pa

    types = {"worker": pa.int32(), "step": pa.int32(), "bytes_sent": pa.int64()}
    names = [f.name for f in fields(Metric)]
    return pa.table({name: pa.array([getattr(row, name) for row in metrics], type=types.get(name)) for name in names})


def write_unfinished(directory: Path, rank: int, spans: NDArray[np.void], metrics: Sequence[Metric]) -> None:
    """What a worker knows that cannot go on, as unfinished.<rank>.npz. Quickly: others wait to hear why."""
    text = json.dumps([astuple(row) for row in metrics])
    _store(directory, f"unfinished.{rank}", spans=spans, metrics=np.array(text))


def merge_unfinished(directory: Path) -> None:
    """What the workers of such a cell wrote, as trace.parquet and metrics.parquet."""
    spans: dict[int, NDArray[np.void]] = {}
    metrics: list[Metric] = []
    for part in sorted(directory.glob("unfinished.*.npz")):
        with np.load(part) as stored:
            spans[int(part.name.split(".")[1])] = stored["spans"]
            metrics += [Metric(*row) for row in json.loads(str(stored["metrics"]))]
        part.unlink()
    if spans:
        _write_tables(directory, spans, metrics)


def _store(directory: Path, name: str, **arrays: Any) -> None:
    """As <name>.npz, complete or not at all."""
    unfinished = directory / f"{name}.part"
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)
    unfinished.rename(directory / f"{name}.npz")
