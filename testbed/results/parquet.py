"""Reads a run's Parquet files. All readers of a run's tables use it: a table holds what its schema says, or its file is
damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.safe_files import DamagedError, open_regular
from testbed.worker.trace import KINDS

HINT = "was it cut or changed?"
MOST = 1 << 44  # bytes
LATEST = 1 << 62  # nanoseconds
LONGEST = 1e9  # seconds

WORD, NUMBER, SECONDS = "text", "numbers", "times"
RANK, STEP, TIME, BYTES = (-1, 1 << 20), (-1, 1 << 31), (-LATEST, LATEST), (0, 1 << 62)
Schema = Mapping[str, "str | tuple[int, int]"]  # by column; two integers: whole numbers between them
SCHEMAS: Mapping[str, Schema] = {
    "trace.parquet": {
        "worker": RANK,
        "kind": WORD,
        "step": STEP,
        "peer": RANK,
        "start_ns": TIME,
        "end_ns": TIME,
        "bytes_logical": BYTES,
        "bytes_wire": BYTES,
    },
    "metrics.parquet": {
        "worker": RANK,
        "step": STEP,
        "time_s": SECONDS,
        "bytes_sent": BYTES,
        "metric": WORD,
        "value": NUMBER,
    },
    "counters.parquet": {"time_s": SECONDS, "kind": WORD, "name": WORD, "counter": WORD, "value": NUMBER},
}


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn what fails while opening or reading the file into a DamagedError."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError, ValueError, OverflowError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedError(file, f"it cannot be read: {words}", hint=HINT) from error


def there(file: Path) -> bool:
    """Whether there is something of this name, damaged or not."""
    return os.path.lexists(file)


def check_file(file: Path) -> None:
    """Raise DamagedError where it cannot be opened."""
    try:
        os.close(open_regular(file, most=MOST, follow=True))
    except FileNotFoundError as error:
        raise DamagedError(file, "it is gone") from error


def read_table(file: Path, columns: Sequence[str] | None = None, **options: Any) -> Any:
    """Return a pyarrow table of one of the files in SCHEMAS; options as pyarrow.parquet.read_table has them."""
    from pyarrow import parquet

    check_file(file)
    wanted = list(SCHEMAS[file.name] if columns is None else columns)
    with reading(file):
        _check_names(file, parquet.read_schema(file).names, wanted)
        table = parquet.read_table(file, columns=wanted, **options)
        return checked(table, file)


def read_batches(file: Path, rows: int) -> Iterator[Any]:
    """Yield the same in parts of that many rows, for what may not fit into memory."""
    from pyarrow import Table, parquet

    check_file(file)
    wanted = list(SCHEMAS[file.name])
    with reading(file):
        whole = parquet.ParquetFile(file)
        _check_names(file, whole.schema_arrow.names, wanted)
        for batch in whole.iter_batches(rows, columns=wanted):
            yield checked(Table.from_batches([batch]), file)


def count_rows(file: Path) -> int:
    """Count rows without reading them."""
    from pyarrow import parquet

    check_file(file)
    with reading(file):
        return int(parquet.read_metadata(file).num_rows)


def _check_names(file: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if names.count(name) != 1:
            raise DamagedError(file, f"it has {names.count(name) or 'no'} columns {name}", hint=HINT)


def checked(table: Any, file: Path) -> Any:
    """Return the table, if it has its file's schema. An empty one may lack types, as nothing says what they are."""
    import pyarrow as pa

    schema = SCHEMAS[file.name]
    for name in table.column_names:
        column, wanted = table[name], schema[name]
        untyped = pa.types.is_null(column.type) and not len(column)
        if untyped or (wanted in (NUMBER, SECONDS) and pa.types.is_integer(column.type)):
            column = column.cast(_type(wanted))
            table = table.set_column(table.column_names.index(name), name, column)
        if problem := _problem(column, wanted):
            raise DamagedError(file, f"its column {name} {problem}", hint=HINT)
    if file.name == "trace.parquet" and "kind" in table.column_names:
        _check_kinds(table["kind"].unique().cast(pa.string()).to_pylist(), file)
    return table


def _check_kinds(found: Sequence[str], file: Path) -> None:
    if unknown := set(found) - set(KINDS):
        raise DamagedError(file, f"there are no spans of kind {min(unknown)}", hint=HINT)


def _type(wanted: str | tuple[int, int]) -> Any:
    import pyarrow as pa

    return pa.string() if wanted == WORD else pa.float64() if wanted in (NUMBER, SECONDS) else pa.int64()


def _problem(column: Any, wanted: str | tuple[int, int]) -> str:
    """Return what is wrong with a column; nothing where it is as it should be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if column.null_count:
        return "has gaps"
    if wanted == WORD:
        is_text = pa.types.is_string(kind.value_type if pa.types.is_dictionary(kind) else kind)
        return "" if is_text else f"should hold text, not {kind}"
    if wanted in (NUMBER, SECONDS):
        if not pa.types.is_floating(kind):
            return f"should hold numbers, not {kind}"
        if wanted == SECONDS and not pc.all(pc.less_equal(pc.abs(column), LONGEST)).as_py():
            return "has times that cannot be" if len(column) else ""
        return ""
    if not pa.types.is_integer(kind):
        return f"should hold whole numbers, not {kind}"
    ends = pc.min_max(column).as_py()
    if len(column) and not int(wanted[0]) <= ends["min"] <= ends["max"] <= int(wanted[1]):
        return f"has values from {ends['min']} to {ends['max']}, which cannot be"
    return ""
