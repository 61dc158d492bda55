"""Sets one key of a scenario's plain data: for --set on the command line and for sweeps."""

from __future__ import annotations

from typing import Any

from testbed.errors import ScenarioError
from testbed.scenario.source import Keys
from testbed.scenario.task import Task

_SHORT: dict[Keys, str] = {("workers",): "count", ("gossip",): "graph"}  # `workers: 8` is its count


def assign(data: Any, keys: Keys, value: Any, where: str, at: Keys = ()) -> Any:
    """Return a copy of the data with `keys` set to value. Short forms on the way are written out."""
    if not keys:
        return value
    key, rest = keys[0], keys[1:]
    if isinstance(data, list):
        return _in_list(data, key, rest, value, where, at)
    mapping = _written_out(data, str(key), at)
    here = str(key)
    return {**mapping, here: assign(mapping.get(here), rest, value, where, (*at, here))}


def _in_list(data: list[Any], key: str | int, rest: Keys, value: Any, where: str, at: Keys) -> list[Any]:
    path = ".".join(map(str, at))
    if not isinstance(key, int) or key >= len(data):
        there = f"its entries are 0 to {len(data) - 1}" if data else "it has no entries"
        raise ScenarioError(f"{where}: {path} is a list and has no entry '{key}'; {there}")
    return [*data[:key], assign(data[key], rest, value, where, (*at, key)), *data[key + 1 :]]


def _written_out(data: Any, key: str, at: Keys) -> dict[str, Any]:
    """Return the mapping that holds `key`. A name that gets an option becomes one, like ring in `topology: ring`."""
    if isinstance(data, dict) and (
        at != ("gossip",) or key not in ("graph", "weights") or data.keys() & {"graph", "weights"}
    ):
        return data
    if at == ("task",) and isinstance(data, str):
        return dict(Task.written_out(data))
    short = _SHORT.get(at)
    return {short: data} if short and data else {}
