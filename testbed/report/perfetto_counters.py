"""Tracks of a timeline from counters.parquet: rates, queues, drops and processors. perfetto.py writes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from testbed.results.parquet import read_table, there


@dataclass(frozen=True)
class Track:
    """How a counter is shown."""

    name: str
    unit: str
    factor: float = 1.0
    change: bool = False  # per second since the last sample, or per sample, rather than the value itself
    per_second: bool = True
    always: bool = True  # else only if it is ever above zero


TRACKS = {
    ("link", "bytes"): Track("rate", "Mbit/s", 8e-6, change=True),
    ("link", "backlog_bytes"): Track("backlog", "kB", 1e-3),
    ("link", "drops"): Track("drops", "packets", change=True, per_second=False, always=False),
    ("port", "tx_bytes"): Track("sent", "Mbit/s", 8e-6, change=True),
    ("port", "rx_bytes"): Track("received", "Mbit/s", 8e-6, change=True),
    ("worker", "cpu_seconds"): Track("processor", "cores", change=True),
    ("worker", "retransmits"): Track("retransmits", "packets", change=True, per_second=False, always=False),
    ("worker", "memory"): Track("memory", "MB", 1e-6),
    ("host", "idle"): Track("idle", "%", 100),
    ("host", "share"): Track("of one core", "%", 100),
}


@dataclass(frozen=True)
class Sample:
    """One point of a track."""

    at: int  # ns from the cell's beginning
    worker: str  # its worker; empty for a link or the machine
    track: str
    unit: str
    value: float


def samples(file: Path, zero_ns: int, first: int, last: int, workers: Collection[str]) -> Iterator[Sample]:
    """Yield samples between two times, of these workers, of the links that begin or end at one of them, and of the
    machine. What changed between two samples is shown from the first of them on."""
    table = _read(file)
    if table.empty:
        return
    table["at"] = (table["time_s"] * 1e9).round().astype("int64") - zero_ns
    for (kind, name, counter), rows in table.groupby(["kind", "name", "counter"], sort=False, observed=True):
        track = TRACKS.get((str(kind), str(counter)))
        if track is None or not _wanted(str(kind), str(name), workers):
            continue
        values = rows["value"] * track.factor
        if track.change:
            values = values.diff().shift(-1)
            if track.per_second:
                values = values / rows["time_s"].diff().shift(-1)
        if not track.always and not (values > 0).any():
            continue
        shown = values[(rows["at"] >= first) & (rows["at"] <= last)].dropna()
        own = kind in ("port", "worker")
        for at, value in zip(rows["at"][shown.index].tolist(), shown.tolist(), strict=True):
            yield Sample(at, str(name) if own else "", track.name if own else f"{name} {track.name}", track.unit, value)


def instants(file: Path, zero_ns: int, first: int, last: int) -> Iterator[tuple[int, str]]:
    """Yield what the scenario's events did to links and workers, and when."""
    table = _read(file)
    if table.empty:
        return
    for row in table[table["kind"] == "fault"].itertuples():
        at = round(float(row.time_s) * 1e9) - zero_ns
        if first <= at <= last:
            yield at, f"{row.name}: {row.counter}"


def _read(file: Path) -> Any:
    return read_table(file).to_pandas() if there(file) else pd.DataFrame()


def _wanted(kind: str, name: str, workers: Collection[str]) -> bool:
    if kind == "link":
        return any(end in workers for end in name.split(">"))
    return kind == "host" or name in workers
