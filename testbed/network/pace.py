"""Computes how fast a packet train arrived, from each packet's departure and arrival. Pure; for measure.py."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

SLICE = 30  # packets, enough to measure a rate
IN_TIME = 0.95  # of the pace asked for, at which a sender was fast enough to fill a link
HELD_UP = 0.97  # of the pace at which packets left; those that came more slowly were held up on their way


def carried(departures: Sequence[float], arrivals: Sequence[tuple[int, float]], asked: float) -> float | None:
    """Return the packets per second that a link carried: the median of up to five parts of at least SLICE packets each,
    as the sender may have been delayed. None where this is the sender's pace: in the median part it was slower than
    asked, and nothing delayed its packets on the way. `arrivals`: packet numbers and times."""
    found = []
    for begin, end in _parts(len(arrivals)):
        (first, came_first), (last, came_last) = arrivals[begin], arrivals[end]
        came, seconds = _rate(end - begin, came_last - came_first), departures[last] - departures[first]
        in_time = last - first >= IN_TIME * asked * seconds
        found.append((came, in_time or came * seconds < HELD_UP * (end - begin)))
    if not found:
        return 0.0
    found.sort()
    middle = found[(len(found) - 1) // 2 : len(found) // 2 + 1]
    return statistics.mean(came for came, _ in middle) if all(tells for _, tells in middle) else None


def _parts(count: int) -> list[tuple[int, int]]:
    """Return the first and the last packet of each part."""
    last = count - 1
    parts = min(5, max(1, last // SLICE))
    return list(pairwise(last * part // parts for part in range(parts + 1))) if last > 0 else []


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0
