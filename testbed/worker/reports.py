"""A worker's last report as plain data: that it is done, or why it failed. The process that forked it reads it.

Reports are hostile input, since a worker may write anything: JSON, fixed fields of bounded size, nothing unpickled.
"""

from __future__ import annotations

from typing import Any

from testbed.errors import DivergedError, StorageError, TestbedError, TrainingError, WorkerDiedError
from testbed.worker.transport import ALL, LeftBehindError, PeerLostError

LONGEST = 4000  # characters of a message
MOST_BYTES = 64 << 10  # of a report
_MOST_STEPS = 1 << 62
_DETAILS = ("peer", "step", "worker", "why", "silent")
_FIELDS = {"kind", "message", "hint", *_DETAILS}
_KINDS: dict[str, type[TestbedError]] = {
    "peer_lost": PeerLostError,
    "left_behind": LeftBehindError,
    "died": WorkerDiedError,
    "diverged": DivergedError,
    "storage": StorageError,
}


def of(error: TestbedError | None) -> dict[str, Any]:
    """Make the report of an end."""
    if error is None:
        return {"failure": None}
    kind = next((name for name, cls in _KINDS.items() if isinstance(error, cls)), "training")
    hint = None if error.hint is None else error.hint[:LONGEST]
    fields = {name: getattr(error, name, None) for name in _DETAILS}
    return {"failure": {"kind": kind, "message": str(error)[:LONGEST], "hint": hint, **fields}}


def failure(report: Any, size: int) -> TestbedError | None:
    """Return the error in a report of one of so many workers; ValueError where it is not a report."""
    if not isinstance(report, dict) or report.keys() != {"failure"}:
        raise ValueError("no report")
    told = report["failure"]
    if told is None:
        return None
    if not isinstance(told, dict) or told.keys() != _FIELDS:
        raise ValueError("a report with other fields than it should have")
    message, hint, kind = _text(told["message"]), told["hint"], told["kind"]
    hint = None if hint is None else _text(hint)
    step = _number(told["step"], 0, _MOST_STEPS)
    if kind == "peer_lost":
        lost = PeerLostError(message, hint=hint, peer=_number(told["peer"], ALL, size - 1), step=step)
        lost.silent = _ranks(told["silent"], size)
        return lost
    if kind in ("died", "left_behind"):
        died = WorkerDiedError if kind == "died" else LeftBehindError
        return died(message, hint=hint, worker=_text(told["worker"] or ""), why=_text(told["why"] or ""))
    if kind == "diverged":
        return DivergedError(message, hint=hint, step=step, worker=_text(told["worker"] or ""))
    return (StorageError if kind == "storage" else TrainingError)(message, hint=hint)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > LONGEST:
        raise ValueError("a report with something else than a text")
    return value


def _number(value: Any, least: int, most: int) -> int:
    """Return the number; the least where it makes no sense."""
    return value if type(value) is int and least <= value <= most else least


def _ranks(value: Any, size: int) -> tuple[int, ...]:
    """Return the ranks that exist."""
    if not isinstance(value, list | tuple) or len(value) > size:
        raise ValueError("a report with something else than workers")
    return tuple(rank for rank in value if type(rank) is int and 0 <= rank < size)
