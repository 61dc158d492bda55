"""A run as CSV files for spreadsheets, R and the like. `testbed export` calls `export_csv`.

Small tables come from `testbed.open_run`; what can be large (metrics, and on demand traces and counters) is copied
batch by batch. columns.csv says what every column means.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import csv as arrow_csv

from testbed.errors import StorageError
from testbed.link.counts import COUNTS
from testbed.results import columns
from testbed.results.parquet import read_batches, there
from testbed.results.run import Run
from testbed.results.swept import TEXT

STREAMED = ("metrics", "trace", "counters")
ROWS = 100_000  # in memory at a time

CELL = {
    "cell": "the cell's id: its directory below cells/",
    "setting": "swept values in words; empty where nothing is swept",
    "method": "as in the report: the method with its options",
    "family": "the method without its options",
    "repeat": "number of the repetition, from 0",
    "seed": "of the cell's random numbers",
    "workers": "how many",
    "point": "number of the network, as in links.csv",
    "variant": "number of the combination of swept values",
}
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "results": CELL | {one.key: one.explained for one in columns.COLUMNS if one.cell or one.group},
    "comparison": {key: CELL[key] for key in ("setting", "method", "family")}
    | {one.key: one.explained for one in columns.COLUMNS if one.compared},
    "metrics": {
        **CELL,
        "worker": "rank; -1: of the averaged model, or of all",
        "step": "after so many steps",
        "time_s": "seconds on the training clock",
        "bytes_sent": "payload bytes sent until then",
        "metric": "which number",
        "value": "its value",
    },
    "links": {
        "point": "number of the network",
        "setting": CELL["setting"],
        "link": "direction that was measured",
        "source": "its beginning",
        "target": "its end",
        "hops": "links on the way",
        "rtt_asked_s": "round trip as the scenario has it, seconds",
        "rtt_s": "round trip as measured",
        "rtt_spread_s": "how much it varied",
        "rate_asked": "bit/s; empty: unlimited",
        "goodput_asked": "bit/s that TCP can carry over that rate",
        "goodput": "bit/s as measured; empty: not measured",
        "loss_asked": "share of packets",
        "loss": "share of packets lost as measured; empty: not measured",
        "packets": "sent to find that out",
        "grade": "faithful, suspect or invalid",
        "reasons": "against a better grade, as JSON",
    },
    "verdicts": {**CELL, "grade": "faithful, suspect or invalid", "reason": "one that spoke against a better grade"},
    "trace": {
        **CELL,
        "worker": "rank",
        "kind": "what it did: data, compute, compress, send, receive, wait, decompress, mix, update, eval, …",
        "step": "in which step, from 0",
        "peer": "with whom; -1: with nobody, or with all",
        "start_ns": "on the host's monotonic clock",
        "end_ns": "on the host's monotonic clock",
        "bytes_logical": "payload of the message",
        "bytes_wire": "what the backend makes of it, before TCP/IP headers",
    },
    "counters": {
        **CELL,
        "time_s": "seconds on the host's monotonic clock, as in the trace",
        "kind": "link, port, worker, host or fault",
        "name": "which link direction or worker",
        "counter": "bytes, packets, drops, backlog_bytes, …; of a fault, what was done",
        "value": "as counted since the network came up; gauges as they were",
    },
}


def export_csv(run: Run, directory: Path, *, with_trace: bool = False, with_counters: bool = False) -> list[Path]:
    """Return the files written: always results, comparison, metrics, links, verdicts and columns."""
    wanted = {"metrics", *(["trace"] if with_trace else []), *(["counters"] if with_counters else [])}
    tables = {
        "results": run.results,
        "comparison": run.compare(),
        "links": run.links,
        "verdicts": run.verdicts,
    }
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = {name: _write_frame(frame, name, directory) for name, frame in tables.items()}
        for name in (name for name in STREAMED if name in wanted):
            written[name] = _stream(run, name, directory / f"{name}.csv")
        _explain(written, directory / "columns.csv")
    except OSError as error:
        raise StorageError(f"cannot write to {directory}: {error.strerror}", hint="name another place") from error
    return [directory / f"{name}.csv" for name in (*written, "columns")]


def meaning(table: str, column: str) -> str:
    """Return the meaning of a column; those that only a sweep makes have the swept key's name."""
    if known := COLUMNS[table].get(column):
        return known
    if table == "links" and (counted := COUNTS.get(column.removesuffix("_asked"))):
        return f"share of packets {counted.words}, as {'asked for' if column.endswith('_asked') else 'measured'}"
    if column.endswith(TEXT):
        return "a swept value, as written in the scenario"
    return "a swept value in base units (seconds, bit/s, bytes, shares), or a metric of the method's own"


def _write_frame(frame: pd.DataFrame, name: str, directory: Path) -> list[str]:
    """Write a frame; return its columns; of an empty one, those that it would have."""
    if frame.columns.empty:
        frame = pd.DataFrame(columns=list(COLUMNS[name]))
    plain = frame.copy()
    for column in plain.columns.difference(plain.select_dtypes("number").columns):
        plain[column] = [_text(value) for value in plain[column]]
    # A column of whole numbers with gaps stays one of whole numbers.
    plain.convert_dtypes().to_csv(directory / f"{name}.csv", index=False)
    return list(plain.columns)


def _text(value: Any) -> Any:
    return json.dumps(value, default=str) if isinstance(value, tuple | list | dict) else value


def _stream(run: Run, name: str, file: Path) -> list[str]:
    """Write a table of all cells, in the order of the plan; return its columns."""
    batches = _batches(run, f"{name}.parquet")
    first = next(batches, None)
    if first is None:
        return _write_frame(pd.DataFrame(), name, file.parent)
    with arrow_csv.CSVWriter(str(file), first.schema) as writer:
        for table in chain([first], batches):
            writer.write_table(table.cast(first.schema))
    return list(first.schema.names)


def _batches(run: Run, name: str) -> Iterator[Any]:
    """Yield parts of a table of all cells, each row preceded by what its cell is; words as plain text."""
    for row in run.cells.to_dict("records"):
        file = run.directory.cell(row["cell"]) / name
        if row["cell"] not in run.raw or not there(file):
            continue
        with run.directory.skipping():
            for batch in read_batches(file, ROWS):
                known = {str(key): value for key, value in row.items() if key not in batch.schema.names}
                front = {key: pa.repeat(_scalar(value), batch.num_rows) for key, value in known.items()}
                own = {key: _plain(batch[key]) for key in batch.schema.names}
                if batch.num_rows:
                    yield pa.table(front | own)


def _scalar(value: Any) -> Any:
    return pa.scalar(value, pa.float64() if isinstance(value, float) else None)


def _plain(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _explain(written: Mapping[str, Collection[str]], file: Path) -> None:
    with file.open("w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(("file", "column", "meaning"))
        rows.writerows(
            (f"{table}.csv", column, meaning(table, column)) for table in written for column in written[table]
        )
