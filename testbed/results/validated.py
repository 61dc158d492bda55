"""Reads a run's JSON files as types: whatever is wrong becomes a DamagedError that names the file and the key.

Types are plain dataclasses; pydantic checks them. Scalars are not converted: "5" is not a number here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from testbed import safe_files
from testbed.safe_files import DamagedError

MOST = 256 << 20  # bytes; links.json of a thousand workers that was resumed many times has a tenth of it
HINT = "was it changed by hand, or cut?"
LARGEST = 1e300  # so that sums of a few stay numbers

T = TypeVar("T")


def _metric(value: float) -> float:
    if abs(value) > LARGEST and value != float("inf"):
        raise ValueError("should be a number that can be averaged")
    return value


def _name(value: str) -> str:
    if value in ("", ".", "..") or "/" in value or "\0" in value or len(value.encode()) > 255:
        raise ValueError("should be the name of a directory")
    return value


Count = Annotated[int, Field(ge=0, lt=2**63)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Amount = Annotated[float, Field(ge=0, le=1e18)]  # seconds, bytes; NaN is none
Positive = Annotated[float, Field(gt=0, le=1e18)]
Metric = Annotated[float, AfterValidator(_metric)]  # a loss may be NaN or infinite
Name = Annotated[str, AfterValidator(_name)]


def read(path: Path, adapter: TypeAdapter[T]) -> T:
    """Return what the file says. FileNotFoundError where there is none."""
    return parse(safe_files.read_bytes(path, most=MOST, follow=True), adapter, path)


def parse(content: bytes, adapter: TypeAdapter[T], path: Path) -> T:
    """Return what the content of that file says."""
    if not content:
        raise DamagedError(path, "it is empty", hint=HINT)
    try:
        return adapter.validate_json(content, strict=True)
    except ValidationError as error:
        raise DamagedError(path, explain(error), hint=HINT) from error


def explain(error: ValidationError) -> str:
    """Return the first thing that is wrong, with its key."""
    first: Any = error.errors(include_url=False, include_input=False)[0]
    words = str(first["msg"]).removeprefix("Value error, ")
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {words}" if where else words
