"""What a worker's training gave: numbers, metrics, spans, the final model. The loop makes it, others read it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
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

    def last(self, metric: str, worker: int | None = None) -> float | None:
        """The last value of a metric of this worker (or the one asked for), if this result holds one."""
        wanted = self.rank if worker is None else worker
        rows = [row for row in self.metrics if row.metric == metric and row.worker == wanted]
        return rows[-1].value if rows else None

    def write(self, directory: Path) -> None:
        """As worker.<rank>.npz, complete or not at all. Tables are made by who collects: numpy is loaded already."""
        text = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("metrics", "spans", "x")}
        text["metrics"] = [astuple(row) for row in self.metrics]
        unfinished = directory / f"worker.{self.rank}.part"
        with unfinished.open("wb") as file:
            np.savez(file, spans=self.spans, x=self.x, text=np.array(json.dumps(text)))
        unfinished.rename(directory / f"worker.{self.rank}.npz")

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
    import pyarrow as pa
    from pyarrow import parquet

    traces = [to_arrow(result.rank, result.spans) for result in results]
    parquet.write_table(pa.concat_tables(traces), directory / "trace.parquet")
    rows = [row for result in results for row in result.metrics]
    parquet.write_table(metrics_table(rows), directory / "metrics.parquet")


def metrics_table(metrics: Sequence[Metric]) -> Any:
    """A pyarrow table with a column per field of Metric."""
    import pyarrow as pa

    types = {"worker": pa.int32(), "step": pa.int32(), "bytes_sent": pa.int64()}
    names = [f.name for f in fields(Metric)]
    return pa.table({name: pa.array([getattr(row, name) for row in metrics], type=types.get(name)) for name in names})


def merge_traces(directory: Path) -> None:
    """What workers of a failed cell wrote themselves, trace.<rank>.npy, as trace.parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    tables = []
    for part in sorted(directory.glob("trace.[0-9]*.npy")):
        with suppress(ValueError, EOFError):  # its worker was killed while it wrote
            tables.append(to_arrow(int(part.name.split(".")[1]), np.load(part)))
        part.unlink()
    if tables:
        parquet.write_table(pa.concat_tables(tables), directory / "trace.parquet")
