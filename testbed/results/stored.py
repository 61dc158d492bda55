"""Reading a run's Parquet files: what is damaged becomes one clear error. Everything that reads runs does it here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testbed.errors import StorageError


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Around whatever opens or reads the file."""
    from pyarrow import ArrowException

    try:
        yield
    except (ArrowException, OSError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise StorageError(f"{file} cannot be read: {words}", hint="was it cut or changed?") from error


def read_table(file: Path, **options: Any) -> Any:
    """A pyarrow table; options as pyarrow.parquet.read_table has them."""
    from pyarrow import parquet

    with reading(file):
        return parquet.read_table(file, **options)
