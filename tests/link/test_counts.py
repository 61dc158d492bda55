"""Numbered packets: what should become of them, and what did. Pure."""

from __future__ import annotations

from random import Random

import pytest

from testbed.link.counts import COUNTS, early_ones, lost, whole
from testbed.link.shape import Shape

PACKETS = 200_000


def emulated(shapes: list[Shape], draw: Random) -> list[int]:
    """The numbers that arrive over links with netem's rules for loss, copies and damage; in their order."""

    def pass_link(shape: Shape, copy: bool = False) -> int:
        copies = 1 + (not copy and draw.random() < shape.duplicate) - (draw.random() < shape.loss)
        arrived = 0
        if copies == 2:
            arrived += pass_link(shape, copy=True)
        return arrived + (copies > 0 and draw.random() >= shape.corrupt)

    arrived = []
    for number in range(PACKETS):
        copies = 1
        for shape in shapes:
            copies = sum(pass_link(shape) for _ in range(copies))
        arrived += [number] * copies
    return arrived


@pytest.mark.parametrize(
    "shapes",
    [
        [Shape(loss=0.1)],
        [Shape(corrupt=0.1), Shape(loss=0.2)],
        [Shape(duplicate=0.3)],
        [Shape(loss=0.2, duplicate=0.3, corrupt=0.1)],
        [Shape(duplicate=0.2, loss=0.1), Shape(duplicate=0.3, corrupt=0.2), Shape(loss=0.1)],
    ],
)
def test_expectations_are_what_netem_s_rules_come_to(shapes: list[Shape]) -> None:
    numbers = emulated(shapes, Random(1))
    for name in ("lost", "repeated"):
        assert COUNTS[name].seen(numbers, PACKETS) == pytest.approx(COUNTS[name].expected(shapes), abs=0.005), name


def test_loss_alone_adds_up_as_it_always_did() -> None:
    assert lost([Shape(loss=0.1), Shape(loss=0.2)]) == pytest.approx(1 - 0.9 * 0.8)
    assert lost([Shape(), Shape(up=False, duplicate=0.5)]) == 1
    assert lost([Shape()]) == 0
    assert whole([Shape(corrupt=0.1), Shape(corrupt=0.1, loss=0.5)]) == pytest.approx(0.81)


def test_nothing_is_expected_of_links_that_do_nothing() -> None:
    assert {name: count.expected([Shape(latency=1), Shape(rate=1)]) for name, count in COUNTS.items()} == dict.fromkeys(
        COUNTS, 0
    )


@pytest.mark.parametrize(
    ("arrived", "early"),
    [
        ([0, 1, 2, 3], set()),
        ([0, 3, 1, 2, 4], {3}),
        ([2, 3, 0, 1], {2, 3}),  # two in a row overtake the same others
        ([0, 2, 4], set()),  # lost ones are not overtaken
        ([0, 0, 1, 1], set()),
        ([0, 2, 1, 2], {2}),  # the copy comes in its turn
        ([], set()),
    ],
)
def test_who_overtakes_is_early_and_who_is_overtaken_is_not(arrived: list[int], early: set[int]) -> None:
    assert early_ones(arrived) == early
    assert COUNTS["early"].seen(arrived, 10) == len(early) / 10


def test_copies_are_counted_once_each() -> None:
    assert COUNTS["repeated"].seen([0, 0, 1, 2, 2, 2], 4) == 3 / 4
    assert COUNTS["lost"].seen([0, 0, 1, 2, 2, 2], 4) == 1 / 4


def test_packets_that_overtake_on_either_link_are_early() -> None:
    ways = [Shape(reorder=0.1, latency=1), Shape(reorder=0.2, latency=1, loss=0.5)]
    assert COUNTS["early"].expected(ways) == pytest.approx((1 - 0.9 * 0.8) * 0.5)
