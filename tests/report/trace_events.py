"""Whether a file is a good trace in the Chrome trace event format, by the definition of that. Tests call `check`."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

REQUIRED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts"},
    "C": {"name", "pid", "ts", "args"},
    "i": {"name", "pid", "tid", "ts", "s"},
    "M": {"name", "pid", "args"},
}
NS = Decimal(1000)  # times are in microseconds


def read(file: Path) -> dict[str, Any]:
    """Numbers as they are written, so that nanoseconds are exact."""
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as text:
        trace: dict[str, Any] = json.load(text, parse_float=Decimal)
    return trace


def check(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Its events, times in whole nanoseconds (at, length). AssertionError says what is wrong."""
    events = trace["traceEvents"]
    for event in events:
        assert event["ph"] in REQUIRED, event
        missing = REQUIRED[event["ph"]] - set(event)
        assert not missing, (missing, event)
        if event["ph"] != "M":
            event["at"] = nanoseconds(event["ts"])
            assert event["at"] >= 0, event
        if event["ph"] == "X":
            event["length"] = nanoseconds(event["dur"])
            assert event["length"] >= 0, event
    _sorted(events)
    _named(events)
    _nested(events)
    _flows(events)
    return list(events)


def nanoseconds(value: Decimal | int) -> int:
    exact = value * NS
    assert exact == int(exact), value
    return int(exact)


def of(events: list[dict[str, Any]], phase: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == phase]


def _sorted(events: list[dict[str, Any]]) -> None:
    """By time, from one process name to the next: cells follow each other."""
    last = 0
    for event in events:
        if event["ph"] == "M":
            last = 0
        else:
            assert event["at"] >= last, event
            last = event["at"]


def _named(events: list[dict[str, Any]]) -> None:
    """Every process and lane that is used has a name, which no other has, and one place."""
    names = {kind: {} for kind in ("process_name", "thread_name", "process_sort_index", "thread_sort_index")}
    for event in of(events, "M"):
        key = (event["pid"], event["tid"]) if event["name"].startswith("thread") else event["pid"]
        assert key not in names[event["name"]], event
        names[event["name"]][key] = next(iter(event["args"].values()))
    assert set(names["process_name"]) == set(names["process_sort_index"])
    assert set(names["thread_name"]) == set(names["thread_sort_index"])
    lanes = [(key[0], name) for key, name in names["thread_name"].items()]
    assert len(set(lanes)) == len(lanes)
    for event in events:
        assert event["pid"] in names["process_name"], event
        if event["ph"] in "Xsfi":
            assert (event["pid"], event["tid"]) in names["thread_name"], event


def _nested(events: list[dict[str, Any]]) -> None:
    """Of two slices in a lane, one lies within the other or they have no time in common; parents come first."""
    open_ends: dict[Any, list[int]] = defaultdict(list)
    for event in of(events, "X"):
        stack = open_ends[event["pid"], event["tid"]]
        while stack and stack[-1] <= event["at"]:
            stack.pop()
        end = event["at"] + event["length"]
        assert not stack or end <= stack[-1], event
        stack.append(end)


def _flows(events: list[dict[str, Any]]) -> None:
    """Each begins once and ends once, later, and both its ends lie in a slice."""
    ends: dict[Any, dict[str, dict[str, Any]]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            both = ends[event["id"], event["cat"], event["name"]]
            assert event["ph"] not in both, event
            both[event["ph"]] = event
    slices = defaultdict(list)
    for event in of(events, "X"):
        slices[event["pid"], event["tid"]].append((event["at"], event["at"] + event["length"]))
    for both in ends.values():
        assert set(both) == {"s", "f"}, both
        assert both["f"]["at"] >= both["s"]["at"], both
        assert both["f"]["bp"] == "e", both  # else it would point to the next slice
        for event in both.values():
            lane = slices[event["pid"], event["tid"]]
            assert any(start <= event["at"] < max(end, start + 1) for start, end in lane), event
