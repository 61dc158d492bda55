"""The pace of a train, from made-up times. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from testbed.network.pace import carried


def numbered(times: Sequence[float]) -> list[tuple[int, float]]:
    return list(enumerate(times))


def every(seconds: float, count: int = 300, begin: float = 0.0) -> list[float]:
    return [begin + seconds * number for number in range(count)]


def through(departures: Sequence[float], seconds: float, room: int = 10_000) -> list[tuple[int, float]]:
    """Arrivals behind a link that takes so long for a packet; a queue of `room` packets, full: dropped."""
    free, found = 0.0, []
    for number, left in enumerate(departures):
        if free - left > room * seconds:
            continue
        free = max(free, left) + seconds
        found.append((number, free + 0.005))
    return found


def test_a_train_that_was_held_up_once_does_not_seem_slow() -> None:
    times = [n / 1000 for n in range(200)] + [0.3 + n / 1000 for n in range(200, 300)]
    assert carried(times, numbered(times), 1000) == pytest.approx(1000)
    assert carried(every(0.001, 20), numbered(every(0.001, 20)), 1000) == pytest.approx(1000)
    assert carried([1.0, 1.5], numbered([1.0, 1.5]), 2) == 2


def test_a_link_that_is_filled_tells_its_rate() -> None:
    """A tenth more than it carries is sent, as calibration does."""
    departures = every(1 / 1100)
    assert carried(departures, through(departures, 1 / 1000), 1100) == pytest.approx(1000)
    assert carried(departures, through(departures, 1 / 1000, room=5), 1100) == pytest.approx(1000, rel=0.01)
    assert carried(departures, through(departures, 1 / 500), 1100) == pytest.approx(500)  # one that is too slow
    assert carried(departures, through(departures, 1 / 9000), 1100) == pytest.approx(1100)  # or too fast


def test_a_slow_sender_is_not_a_slow_link() -> None:
    departures = every(1 / 600)
    assert carried(departures, through(departures, 1 / 1000), 1100) is None


def test_a_link_slower_than_a_slow_sender_is_slow() -> None:
    departures = every(1 / 600)
    assert carried(departures, through(departures, 1 / 300), 1100) == pytest.approx(300)


def test_a_sender_slow_for_a_while_spoils_only_what_it_sent_then() -> None:
    quick = every(1 / 1100, 200)
    slow = every(1 / 300, 100, begin=quick[-1] + 1 / 300)
    assert carried(quick + slow, through(quick + slow, 1 / 1000), 1100) == pytest.approx(1000)
    slow = every(1 / 300, 200)
    quick = every(1 / 1100, 100, begin=slow[-1] + 1 / 1100)
    assert carried(slow + quick, through(slow + quick, 1 / 1000), 1100) is None


def test_losses_are_not_the_sender_s_doing() -> None:
    """Half of what is sent is lost before the link, which is filled by the rest."""
    departures = every(1 / 2200, 600)
    kept = departures[::2]
    found = [(2 * number, time) for number, time in through(kept, 1 / 1000)]
    assert carried(departures, found, 2200) == pytest.approx(1000)
    assert carried(every(1 / 1000, 600), [(2 * n, t) for n, t in through(every(2 / 1000), 1 / 1000)], 2200) is None


def test_of_nothing_there_is_no_pace() -> None:
    assert carried(every(0.001), [], 1000) == 0.0
    assert carried(every(0.001), [(0, 1.0)], 1000) == 0.0
    assert carried([1.0, 1.0], [(0, 2.0), (1, 2.0)], 1000) == 0.0
