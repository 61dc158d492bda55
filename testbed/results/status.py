"""How a cell ended, from its result. Everything that needs a cell's status calls it. Pure."""

from __future__ import annotations

from typing import Literal

from testbed.results.cell import CellResult

Status = Literal["done", "diverged", "failed"]


def status(result: CellResult) -> Status:
    """Return the status. A diverged training has an error and says where; it is a finding, and would diverge again."""
    if result.error is None:
        return "done"
    return "diverged" if result.diverged else "failed"


def outcome(result: CellResult) -> str:
    """Return the grade of the cell's emulation where it is done; else diverged, or failed."""
    ended = status(result)
    return result.verdict.grade if ended == "done" else ended
