"""What the kernel is told about a link: sizes, limits, ranges. Pure."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as some

from testbed.link import netem
from testbed.link.shape import Shape
from testbed.scenario.links import NETEM_LONGEST
from testbed.scenario.units import Rate

MBIT = 10**6
TICKS = 1e9 / 64  # netem counts time in units of 64 ns, in 32 bits

times = some.floats(0, float(NETEM_LONGEST))
rates = some.integers(Rate.least, Rate.most)
mtus = some.integers(576, 65521)  # what a scenario may ask for
legal_shapes = some.builds(
    Shape,
    latency=times,
    rate=some.none() | rates,
    jitter=times,
    loss=some.floats(0, 1, exclude_max=True),
    buffer=some.none() | times,
    up=some.booleans(),
)
shapes_with_rate = some.builds(
    Shape, latency=some.floats(0, 1), rate=rates, jitter=some.floats(0, 0.1), buffer=some.none() | some.floats(0, 1)
)


def symmetric(shape: Shape, mtu: int = 1500) -> int:
    return netem.limit_packets(shape, shape, mtu)


def test_the_limit_holds_what_is_in_flight_and_the_queue() -> None:
    shape = Shape(latency=0.01, rate=100 * MBIT, buffer=0.05)
    per_second = 100 * MBIT / (8 * 1514)
    assert symmetric(shape) == ceil(per_second * 0.01) + ceil(per_second * 0.05)


def test_jitter_needs_room() -> None:
    shape = Shape(latency=0.01, rate=100 * MBIT, buffer=0.05)
    per_second = 100 * MBIT / (8 * 1514)
    assert symmetric(replace(shape, jitter=0.002)) == symmetric(shape) + ceil(per_second * 0.006)


def test_the_default_queue_is_one_round_trip_of_both_directions() -> None:
    there, back = Shape(latency=0.02, rate=500 * MBIT), Shape(latency=0.08, rate=MBIT)
    per_second = 500 * MBIT / (8 * 1514)
    assert netem.limit_packets(there, back) == ceil(per_second * 0.02) + ceil(per_second * 0.1)


def test_a_default_queue_has_at_least_a_hundred_packets_but_an_asked_one_is_as_asked() -> None:
    slow = Shape(latency=0.001, rate=MBIT)
    assert symmetric(slow) == 1 + 100
    assert symmetric(replace(slow, buffer=0.1)) == 1 + ceil(MBIT * 0.1 / (8 * 1514))
    assert symmetric(replace(slow, buffer=0.0)) == 1 + 2  # one that is sent and one that waits: fewer carry nothing


def test_a_limit_in_packets_wins() -> None:
    assert symmetric(Shape(latency=0.1, rate=10 * MBIT, buffer=1.0, limit=17)) == 17
    assert symmetric(Shape(limit=17)) == 17


@given(shapes_with_rate, some.floats(0, 1), mtus)
def test_more_rate_latency_or_buffer_never_means_less_room(shape: Shape, more: float, mtu: int) -> None:
    assert shape.rate
    grown = [
        replace(shape, rate=min(Rate.most, int(shape.rate * (1 + more)))),
        replace(shape, latency=shape.latency + more),
        replace(shape, jitter=shape.jitter + more),
    ]
    if shape.buffer is not None:
        grown.append(replace(shape, buffer=shape.buffer + more))
    for one in grown:
        assert netem.limit_packets(one, shape, mtu) >= netem.limit_packets(shape, shape, mtu)
    assert netem.limit_packets(shape, grown[1], mtu) >= netem.limit_packets(shape, shape, mtu)


@given(shapes_with_rate, mtus)
def test_the_limit_lets_a_full_window_through(shape: Shape, mtu: int) -> None:
    """As many bytes as the link holds at its rate, and the queue on top: no window up to there is ever cut."""
    assert shape.rate
    bytes_at_once = shape.rate / 8 * (shape.latency + netem.buffer_seconds(shape, shape))
    assert symmetric(shape, mtu) * netem.wire_bytes(mtu) >= bytes_at_once - 1


@given(legal_shapes, legal_shapes, mtus, some.floats(0, 0.001))
def test_whatever_a_scenario_may_ask_for_fits_into_the_kernels_numbers(
    shape: Shape, reverse: Shape, mtu: int, overhead: float
) -> None:
    told = netem.netem(shape, reverse, mtu, overhead)
    for whole in (told.delay_us, told.jitter_us, told.rate, told.limit):
        assert isinstance(whole, int)
    assert 0 <= told.delay_us * 1e-6 * TICKS < 2**32
    assert 0 <= told.jitter_us * 1000 < 2**31
    assert 0 <= told.rate < 2**32
    assert 0 < told.limit < 2**32
    assert all(0 <= percent <= 100 for percent in told.percents.values())


@given(rates)
def test_a_limited_link_is_never_told_as_unlimited(rate: int) -> None:
    told = netem.netem(Shape(rate=rate), Shape())
    assert told.rate == pytest.approx(rate / 8, abs=0.5)
    assert told.rate > 0


def test_no_rate_is_told_as_zero() -> None:
    assert netem.netem(Shape(latency=0.1), Shape()).rate == 0


def test_latency_is_told_in_microseconds_less_what_the_box_adds_itself() -> None:
    assert netem.netem(Shape(latency=0.0123), Shape()).delay_us == 12_300
    assert netem.netem(Shape(latency=0.0123), Shape(), overhead=0.0003).delay_us == 12_000
    assert netem.netem(Shape(latency=0.0001), Shape(), overhead=0.0003).delay_us == 0


def test_jitter_is_a_standard_deviation_and_netem_draws_evenly() -> None:
    assert netem.netem(Shape(jitter=0.005), Shape()).jitter_us == int(5000 * sqrt(3))


def test_loss_is_told_in_percent_and_a_link_that_is_down_loses_everything() -> None:
    assert netem.netem(Shape(loss=0.001), Shape()).percents["loss"] == 0.1
    assert netem.netem(Shape(loss=0.001, up=False), Shape()).percents["loss"] == 100


def test_ideal_goodput_is_what_tcp_headers_leave() -> None:
    assert netem.ideal_goodput(1.0) == pytest.approx(0.9564, abs=0.00005)
    assert netem.ideal_goodput(1.0) == 1448 / 1514
    assert netem.ideal_goodput(1e9, 9000) == pytest.approx(8948 / 9014 * 1e9)


@pytest.mark.parametrize(
    ("shapes", "segments"),
    [
        ([], 44),
        ([Shape()], 44),
        ([Shape(rate=34_000 * MBIT)], 44),
        ([Shape(rate=1000 * MBIT)], 44),
        ([Shape(rate=200 * MBIT)], 16),  # a millisecond of packets
        ([Shape(rate=MBIT)], 1),
        ([Shape(rate=100 * MBIT, loss=0.01)], 1),  # a loss is one packet's
        ([Shape(rate=100 * MBIT, buffer=0.01)], 1),  # the length of the queue matters
        ([Shape(rate=100 * MBIT, limit=50)], 1),
        ([Shape(rate=1000 * MBIT, loss=0.01)], 44),  # one by one would cost more than the processor has
        ([Shape(rate=1000 * MBIT), Shape(rate=10 * MBIT)], 1),  # the slowest decides
        ([Shape(rate=1000 * MBIT), Shape(rate=50 * MBIT, loss=0.01)], 1),
    ],
)
def test_how_large_a_worker_s_packets_may_be(shapes: list[Shape], segments: int) -> None:
    assert netem.gso_segments(shapes) == segments


@pytest.mark.parametrize(
    ("rate", "links", "segments"),
    [(1, 8, 1), (10, 8, 2), (20, 1, 1), (100, 1, 8), (100, 8, 17), (100, 64, 41), (1000, 8, 44)],
)
def test_where_all_links_at_once_are_much_packets_are_larger(rate: int, links: int, segments: int) -> None:
    wanted = netem.keeping_up([rate * MBIT] * 2 * links, 8000)
    assert netem.gso_segments([Shape(rate=rate * MBIT)], wanted=wanted) == segments


def test_where_a_packet_is_a_packet_it_stays_one() -> None:
    assert netem.gso_segments([Shape(rate=10 * MBIT, loss=0.01)], wanted=40) == 1


@given(some.lists(legal_shapes), mtus)
def test_a_super_packet_is_an_ip_packet_and_occupies_the_link_for_a_millisecond_at_most(
    shapes: list[Shape], mtu: int
) -> None:
    segments = netem.gso_segments(shapes, mtu)
    assert 1 <= segments <= 64
    assert mtu <= netem.superpacket_bytes(segments, mtu) <= 65535
    slowest = min((shape.rate for shape in shapes if shape.rate), default=None)
    if slowest and segments > 1:
        assert 8 * segments * netem.wire_bytes(mtu) / slowest <= 0.001


factors = some.floats(1, 64)


@given(shapes_with_rate, shapes_with_rate, mtus, factors)
def test_slow_motion_leaves_as_many_packets_in_the_queue(shape: Shape, reverse: Shape, mtu: int, factor: float) -> None:
    told, slow = (netem.netem(shape, reverse, mtu, slow_motion=one) for one in (1.0, factor))
    assert slow.limit == told.limit
    assert slow.percents == told.percents


@given(shapes_with_rate, factors)
def test_slow_motion_leaves_as_many_bytes_under_way(shape: Shape, factor: float) -> None:
    slow = shape.stretched(factor)
    assert shape.rate
    assert slow.rate
    for seconds, slow_seconds in (
        (shape.latency, slow.latency),
        (shape.jitter, slow.jitter),
        (shape.buffer or 0, slow.buffer or 0),
    ):
        assert slow_seconds == pytest.approx(factor * seconds)
        assert slow.rate * slow_seconds == pytest.approx(shape.rate * seconds, abs=0.5 * slow_seconds + 1e-9, rel=1e-9)


def test_what_the_box_adds_itself_is_not_stretched() -> None:
    told = netem.netem(Shape(latency=0.0123, rate=80 * MBIT), Shape(), overhead=0.0003, slow_motion=8)
    assert told.delay_us == 8 * 12_300 - 300
    assert told.rate == 10 * MBIT // 8
    assert netem.netem(Shape(latency=0.0002), Shape(), overhead=0.0003, slow_motion=8).delay_us == 1_300


def test_real_time_is_left_as_it_is() -> None:
    shape = Shape(latency=0.0123, rate=80 * MBIT + 1, jitter=0.001, buffer=0.1)
    assert shape.stretched(1.0) == shape
