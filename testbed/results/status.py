"""How a cell ended, from its result. Whatever tells cells that are done from others asks here. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

Status = Literal["done", "diverged", "failed"]


def status(result: Mapping[str, Any]) -> Status:
    """A training that diverged has an error and says where; it found something, and would find it again."""
    if result.get("error") is None:
        return "done"
    return "diverged" if result.get("diverged") else "failed"


def outcome(result: Mapping[str, Any]) -> str:
    """The grade of the cell's emulation where it is done; else diverged, or failed."""
    ended = status(result)
    return str(result["verdict"]["grade"]) if ended == "done" else ended
