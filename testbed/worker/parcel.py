"""Numbers and arrays in one file: how a worker hands its results to the controller, which trusts nothing in it.

One line of JSON, which names the arrays behind it, then their bytes. Nothing is unpickled, unpacked or allocated before
its size is known and small enough; the file itself is opened without following links or waiting for pipes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.safe_files import DamagedError, open_regular

SUFFIX = ".parcel"
MOST_TEXT = 64 << 20  # bytes
MOST_VALUES = 6_000_000  # in it: a million rows of metrics. Each takes many times its bytes once it is read
MOST = 1 << 30  # bytes, of all


def write(directory: Path, name: str, text: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write <name>.parcel, complete or not at all."""
    unfinished = directory / f"{name}.part"
    head = {"text": text, "arrays": {key: len(array) for key, array in arrays.items()}}
    with unfinished.open("wb") as file:
        file.write(json.dumps(head).encode() + b"\n")
        for array in arrays.values():
            file.write(np.ascontiguousarray(array).data)
    unfinished.rename(directory / f"{name}{SUFFIX}")


def read(
    directory: Path, name: str, dtypes: Mapping[str, np.dtype[Any]], most: Mapping[str, int] | None = None
) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Return what `write` wrote: the text and an array for each of these types, of at most so many entries.
    DamagedError where it is anything else."""
    path = directory / f"{name}{SUFFIX}"
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.fdopen(open_regular(path.name, dir_fd=folder, most=MOST), "rb") as file:
            text, counts = _head(path, file.readline(MOST_TEXT), dtypes, most or {})
            arrays = {}
            for key, dtype in dtypes.items():
                content = file.read(counts[key] * dtype.itemsize)
                if len(content) != counts[key] * dtype.itemsize:
                    raise DamagedError(path, f"{key} is cut short")
                arrays[key] = np.frombuffer(content, dtype)
            if file.read(1):
                raise DamagedError(path, "something follows its end")
    except FileNotFoundError:
        raise DamagedError(path, "it is not there") from None
    finally:
        os.close(folder)
    return text, arrays


def _head(
    path: Path, line: bytes, dtypes: Mapping[str, np.dtype[Any]], most: Mapping[str, int]
) -> tuple[Any, dict[str, int]]:
    if line.count(b",") > MOST_VALUES:
        raise DamagedError(path, "its first line says too much")
    try:
        head = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, "its first line is not JSON") from error
    counts = head.get("arrays") if isinstance(head, dict) and head.keys() == {"text", "arrays"} else None
    if not isinstance(counts, dict) or counts.keys() != dtypes.keys():
        raise DamagedError(path, "its first line does not say what is in it")
    for key, count in counts.items():
        if type(count) is not int or not 0 <= count <= most.get(key, MOST):
            raise DamagedError(path, f"{key} cannot have {str(count)[:20]} entries")
    return head["text"], counts
