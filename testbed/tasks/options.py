"""Plain values from a scenario → a frozen dataclass of options, with errors that name the key and what it takes."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from testbed.errors import ScenarioError
from testbed.tasks.datasets import unknown

T = TypeVar("T")


def fill(kind: type[T], given: Mapping[str, Any]) -> T:
    """kind(**given) after each value was checked against the type of its field; the names are known to be right."""
    hints = get_type_hints(kind)
    return kind(**{key: _value(key, value, hints[key]) for key, value in given.items()})


def _value(key: str, value: Any, hint: Any) -> Any:
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):  # X | None; nobody gives None
        (hint,) = (option for option in get_args(hint) if option is not NoneType)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise unknown(key, value, get_args(hint))
        return value
    if get_origin(hint) is tuple:
        items = value if isinstance(value, list | tuple) else [value]
        return tuple(_value(key, item, get_args(hint)[0]) for item in items)
    if hint is bool:
        if not isinstance(value, bool):
            raise ScenarioError(f"{key}: true or false, not {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ScenarioError(f"{key}: a {'whole ' if hint is int else ''}number, not {value!r}")
    if hint is int and value != int(value):
        raise ScenarioError(f"{key}: a whole number, not {value!r}")
    return hint(value)
