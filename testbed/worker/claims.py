"""Checks what a worker says of its training like user input: it may be user code, broken or hostile.

A worker may lie about itself; it may not bring the controller down with it, nor write about others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from testbed.safe_files import DamagedError
from testbed.worker.snapshots import AVERAGE, Metric
from testbed.worker.trace import KINDS

_MOST_BYTES = 1 << 53  # whatever is added up of them is exact
_MOST_NS = 1 << 62
_LONGEST = 1e9  # seconds
_MOST_ENTRIES = 10_000  # of anything but metrics
_SPANS = 100_000, 64, 16  # before training; per step for every worker, and for so many more

Count = Annotated[int, Field(ge=0, le=_MOST_BYTES)]
Seconds = Annotated[float, Field(ge=0, le=_LONGEST, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=_MOST_BYTES, allow_inf_nan=False)]  # bytes per second
Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(max_length=100)]
Row = Annotated[tuple[int, int, Seconds, Count, Name, float], Strict(False)]  # JSON has lists alone


class _Metrics(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    metrics: Annotated[list[Row], Field(max_length=10_000_000, fail_fast=True)]


class _Result(_Metrics):
    """The fields of JobResult except its arrays."""

    rank: Count
    steps: Annotated[int, Field(ge=1, le=_MOST_BYTES)]
    seconds: Seconds
    bytes_sent: dict[Annotated[str, Field(pattern=r"^(-1|\d{1,9})$")], Count]
    paced: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Rate | None]
    tcp_bytes_sent: Count
    tcp_bytes_before: Count
    tcp_bytes_again: Count
    overruns: Count
    decided: Annotated[dict[Name, float], Field(max_length=100)]
    warnings: Annotated[list[Text], Field(max_length=1000)]
    pipelined: bool
    overlaps: bool
    queued: Seconds | None


@contextmanager
def of(path: Path) -> Iterator[None]:
    """Turn whatever is wrong inside into an error of this file."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DamagedError(path, f"{where[:100]}: {first['msg']}") from None
    except ValueError as error:
        raise DamagedError(path, str(error)) from None


def result(text: Any, rank: int, size: int | None, steps: int | None) -> dict[str, Any]:
    """Return the fields of a JobResult, checked to be of the right worker and cell."""
    _check_entries(text)
    found = _Result.model_validate(text)
    if found.rank != rank:
        raise ValueError(f"it speaks for worker {found.rank}")
    if steps is not None and found.steps != steps:
        raise ValueError(f"it speaks of {found.steps} steps instead of {steps}")
    sent = {int(peer): count for peer, count in found.bytes_sent.items()}
    paced = {int(peer): rate for peer, rate in found.paced.items()}
    if size is not None and any(peer >= size for peer in (*sent, *paced)):
        raise ValueError("it has sent to workers that do not exist")
    return {**dict(found), "bytes_sent": sent, "paced": paced, "metrics": _rows(found)}


def metrics(text: Any) -> list[Metric]:
    """Return the metrics of a worker that did not finish."""
    _check_entries(text)
    return _rows(_Metrics.model_validate(text))


def _check_entries(text: Any) -> None:
    """Check the number of entries first: a million mistakes, each with a message, would take all memory."""
    entries = text.items() if isinstance(text, dict) else ()
    for key, value in [("it", text), *((key, value) for key, value in entries if key != "metrics")]:
        if isinstance(value, list | dict) and len(value) > _MOST_ENTRIES:
            raise ValueError(f"{key[:100]} has {len(value)} entries")


def most_spans(size: int | None, steps: int | None) -> int | None:
    """Return how many spans one worker may have; more than any method makes."""
    if size is None or steps is None:
        return None
    before, each, more = _SPANS
    return before + each * (size + more) * steps


def _rows(found: _Metrics) -> list[Metric]:
    return [Metric(*row) for row in found.metrics]


def check_metrics(rows: Sequence[Metric], size: int | None, steps: int | None) -> None:
    for row in rows:
        if row.worker < AVERAGE or (size is not None and row.worker >= size):
            raise ValueError(f"a metric of worker {row.worker}, which does not exist")
        if row.step < 0 or (steps is not None and row.step > steps):
            raise ValueError(f"a metric of step {row.step}, which does not exist")


def check_spans(spans: NDArray[np.void], size: int | None, steps: int | None) -> None:
    """Check everything that later indexes, divides or adds up."""
    if not len(spans):
        return
    bounds = {
        "kind": (0, len(KINDS) - 1),
        "step": (0, None if steps is None else steps - 1),
        "peer": (-1, None if size is None else size - 1),
        "start_ns": (0, _MOST_NS),
        "end_ns": (0, _MOST_NS),
        "bytes_logical": (0, _MOST_BYTES),
        "bytes_wire": (0, _MOST_BYTES),
    }
    for name, (least, most) in bounds.items():
        low, high = int(spans[name].min()), int(spans[name].max())
        if low < least or (most is not None and high > most):
            raise ValueError(f"spans with {name} from {low} to {high}")
    if (spans["end_ns"] < spans["start_ns"]).any():
        raise ValueError("spans that end before they begin")
