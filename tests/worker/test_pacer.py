"""The search for a connection's rate, on simulated links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan
from random import Random

import pytest

from testbed.worker.pacer import LOSSY_REST, SHORT, SLOWEST, Pacer, Seen

from .links import Link

MESSAGE = 1.09e6  # ResNet-20's parameters
RATE = 1.195e6  # what a link of 10 Mbit/s carries of payload
FEW = 12  # rounds
LINKS = [
    Link(RATE),
    Link(RATE, rtt=0.05),
    Link(10 * RATE, rtt=0.0003, buffer=0.012),
    Link(10 * RATE, buffer=0.012),
    Link(RATE / 64, rtt=0.64, buffer=7.0),  # in slow motion
]


def run(link: Link, pacers: Sequence[Pacer], rounds: int, message: float = MESSAGE) -> list[float | None]:
    """What the pacers have found after so many rounds, beginning with what they had found."""
    for _ in range(rounds):
        seen = link.round(message, [pacer.rate for pacer in pacers])
        slowest = max(one.busy for one in seen)
        for pacer, one in zip(pacers, seen, strict=True):
            pacer.next(replace(one, ahead=one.busy < 0.9 * slowest))
    return [pacer.found for pacer in pacers]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("link", LINKS, ids=lambda link: f"{link.rate:.0f}-{link.rtt}")
def test_finds_the_rate_and_follows_it_down_and_up(link: Link, seed: int):
    link, pacer = replace(link, random=Random(seed)), Pacer(phase=seed % 2)
    assert run(link, [pacer], 30) == [pytest.approx(link.rate, rel=0.05)]
    link.rate /= 2
    assert run(link, [pacer], FEW) == [pytest.approx(link.rate, rel=0.05)], "half of it"
    link.rate *= 2
    run(link, [pacer], FEW)
    assert pacer.found is not None
    assert pacer.found > 0.8 * link.rate, "doubled"
    assert run(link, [pacer], FEW) == [pytest.approx(link.rate, rel=0.06)]


def test_keeps_the_queue_short():
    """Most rounds; those in which it tries to be faster make one."""
    link, pacer = Link(RATE), Pacer()
    run(link, [pacer], 30)
    rounds = []
    for _ in range(40):
        (seen,) = link.round(MESSAGE, [pacer.rate])
        rounds.append(seen.rtt - seen.min_rtt)
        pacer.next(seen)
    assert sorted(rounds)[30] < 0.02
    assert max(rounds) < link.buffer / 2, "never a full one"


@pytest.mark.parametrize("seed", range(4))
def test_a_shared_bottleneck_is_shared(seed: int):
    pacers = [Pacer(), Pacer(), Pacer(phase=1)]
    link = Link(RATE, random=Random(seed))
    rates = run(link, pacers, 60)
    assert sum(rate or inf for rate in rates) == pytest.approx(RATE, rel=0.08)
    assert [rate / RATE for rate in rates if rate] == [pytest.approx(1 / 3, abs=0.07)] * 3
    late = Pacer()
    rates = run(link, [*pacers, late], 60)
    assert sum(rate or inf for rate in rates) == pytest.approx(RATE, rel=0.08), "with one more"
    assert late.found is not None
    assert late.found > RATE / 8


def test_does_not_pace_what_fits_into_the_path():
    link, pacer = Link(10 * RATE, rtt=0.05, buffer=0.05), Pacer()  # 25 ms, 100 Mbit/s: 600 kB are under way
    assert run(link, [pacer], 20) == [None]
    assert pacer.rate is None


def test_stops_where_messages_become_short():
    pacer, link = Pacer(), Link(RATE)
    run(link, [pacer], 10)
    assert pacer.rate is not None
    assert run(link, [pacer], 1, message=0.9 * SHORT * RATE * link.rtt) == [None]
    assert pacer.rate is None


def test_pauses_between_messages_are_no_slow_path():
    """A ring's step: short messages, each of which waits for another worker's. The path carries five times as much."""
    pauses = Seen(7e4, 8e5, 0.35, 0.011, 0.01, 10 * RATE, messages=12)
    pacer = Pacer()
    for _ in range(40):
        assert pacer.next(pauses) is None
    assert run(Link(RATE), [pacer], 20) == [pytest.approx(RATE, rel=0.05)], "and one long message is"
    pacer.next(replace(pauses, delivery_rate=RATE, busy=2.0))
    assert pacer.rate is None, "until there are pauses"


def test_messages_without_pauses_are_one_long_one():
    """Each alone would fit into the path."""
    link, pacer = Link(RATE, rtt=0.05), Pacer()
    for _ in range(30):
        (seen,) = link.round(8e5, [pacer.rate])
        pacer.next(replace(seen, message=7e4, messages=12))
    assert pacer.found == pytest.approx(RATE, rel=0.05)
    single = Pacer()
    assert run(link, [single], 30, message=7e4) == [None]


def test_a_path_that_loses_packets_by_itself_is_left_alone():
    """TCP's window is the limit there, and a pace at what it carries would make it carry less."""
    link, pacer, paced = Link(RATE, loss=True), Pacer(), 0
    for _ in range(200):
        (seen,) = link.round(MESSAGE, [pacer.rate])
        paced += pacer.next(seen) is not None
    assert paced < 200 / LOSSY_REST * 6


def test_an_outage_is_no_new_rate():
    """One round takes a minute; the link comes back as it was."""
    link, pacer = Link(RATE), Pacer()
    (before,) = run(link, [pacer], 20)
    pacer.next(Seen(MESSAGE, MESSAGE, 60.0, 0.3, link.rtt, 4e4, lost=2e5))
    assert pacer.found == before
    assert run(link, [pacer], 3) == [pytest.approx(RATE, rel=0.05)]


def test_a_longer_way_is_no_lower_rate():
    """The kernel remembers the shortest round trip for minutes."""
    link, pacer = Link(RATE), Pacer()
    (before,) = run(link, [pacer], 20)
    for _ in range(40):
        (seen,) = link.round(MESSAGE, [pacer.rate])
        pacer.next(replace(seen, rtt=seen.rtt + 0.1, busy=seen.busy + 0.1, delivery_rate=pacer.rate or 0.0))
    assert pacer.found == pytest.approx(before, rel=0.1)


def test_never_slower_than_timers_stand():
    pacer = Pacer()
    run(Link(RATE), [pacer], 10)
    for _ in range(200):
        pacer.next(Seen(MESSAGE, MESSAGE, 1e4, 1e3, 0.01, 0.0))
    assert pacer.found == SLOWEST


@pytest.mark.parametrize(
    "hostile",
    [
        {"busy": nan},
        {"busy": inf},
        {"busy": 0.0},
        {"busy": -1.0},
        {"acked": -5.0},
        {"acked": 0.0},
        {"acked": nan},
        {"rtt": inf},
        {"min_rtt": -0.1},
        {"delivery_rate": nan},
        {"delivery_rate": -1.0},
        {"message": inf},
        {"held_up": 0.9},
        {"lost": -1.0},
    ],
)
def test_counters_that_make_no_sense_change_nothing(hostile: dict[str, float]):
    seen = Seen(MESSAGE, MESSAGE, 1.0, 0.01, 0.01, RATE)
    for rounds in (0, 10):
        pacer = Pacer()
        run(Link(RATE), [pacer], rounds)
        before = pacer.rate, pacer.found
        for _ in range(20):
            pacer.next(replace(seen, **hostile))
        assert (pacer.rate, pacer.found) == before


def test_whatever_is_seen_the_rate_stays_a_rate():
    random, pacer = Random(7), Pacer()
    for _ in range(20_000):
        values = [10 ** random.uniform(-9, 18) * random.choice([0, 1, 1, 1]) for _ in range(8)]
        rate = pacer.next(Seen(*values, messages=random.randrange(20), ahead=random.random() < 0.3))
        assert rate is None or SLOWEST <= rate < 1e30
