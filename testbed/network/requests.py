"""Requests that clients may send to the network daemon, with the arguments each takes.

Arguments are checked before anything is done: the daemon must survive every request, and a timed change is made when no
client may be left to receive an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from testbed.errors import NetworkError
from testbed.link.shape import DISTRIBUTIONS, PROPERTIES

Check = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _process(value: Any) -> bool:
    return type(value) is int and value > 0


def _number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 2**63 and math.isfinite(value)


def _amount(value: Any) -> bool:
    return _number(value) and value >= 0


def _shape(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() <= PROPERTIES.keys() and all(map(_of_shape, value, value.values()))


def _of_shape(name: str, value: Any) -> bool:
    row = PROPERTIES[name]
    if row.unit == "switch":
        return isinstance(value, bool)
    if row.unit == "distribution":
        return _text(value) and value in DISTRIBUTIONS
    return (_amount(value) and (row.unit != "share" or value <= 1)) or (value is None and row.optional)


def _others(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(names, list) and all(map(_text, names)) for names in value.values()
    )


def _changes(value: Any) -> bool:
    return isinstance(value, list) and all(map(_change, value))


def _change(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 3 and _number(value[0]) and _text(value[1])):
        return False
    _, operation, arguments = value
    if operation not in TIMED:
        return isinstance(arguments, dict)  # the daemon says that it cannot be
    return isinstance(arguments, dict) and not _wrong(TIMED[operation], arguments)


TIMED: dict[str, dict[str, Check]] = {
    "set_link": {"link": _text, "ab": _shape, "ba": _shape},
    "set_partition": {"blocked": _others},
}
REQUESTS: dict[str, dict[str, Check]] = {
    **TIMED,
    "status": {},
    "counters": {},
    "namespace": {"worker": _text},
    "adopt": {"worker": _text, "pid": _process},
    "start_events": {"changes": _changes},
    "update_events": {"changes": _changes},
    "stop_events": {},
}


def check(request: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the operation and its arguments; NetworkError says what is wrong with them."""
    operation = request.get("op")
    if not isinstance(operation, str) or operation not in REQUESTS:
        raise NetworkError(f"unknown request {operation!r}")
    arguments = {name: value for name, value in request.items() if name != "op"}
    if wrong := _wrong(REQUESTS[operation], arguments):
        raise NetworkError(f"{operation}: {wrong}")
    return operation, arguments


def _wrong(expected: dict[str, Check], arguments: dict[str, Any]) -> str:
    """Return what is wrong with a request's arguments; "": nothing."""
    if unknown := [*arguments.keys() - expected.keys()]:
        return f"there is no argument {', '.join(sorted(unknown))}"
    if missing := [*expected.keys() - arguments.keys()]:
        return f"the argument {', '.join(sorted(missing))} is missing"
    for name, fits in expected.items():
        value = arguments[name]
        if fits is _shape and isinstance(value, dict) and (unknown := [*value.keys() - PROPERTIES.keys()]):
            return f"a link has no {', '.join(sorted(unknown))}"
        if not fits(value):
            return f"the argument {name} cannot be {_short(value)}"
    return ""


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
