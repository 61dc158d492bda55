"""The table of a link's properties: every row is complete, and whatever has a row is known everywhere."""

from __future__ import annotations

import pytest

from testbed.link import netem
from testbed.link.counts import COUNTS
from testbed.link.shape import PROPERTIES, SHARES, WRITTEN, Property, Shape, as_data, disturbs, unusual
from testbed.network import requests, setting
from testbed.plan.traces import COLUMNS
from testbed.scenario.links import Link, LinkOptions, in_words, number_of
from testbed.scenario.network import RegionMatrix

BEFORE = ("latency", "rate", "jitter", "loss", "buffer", "up", "limit")  # in plans of the first versions
rows = pytest.mark.parametrize("row", PROPERTIES.values(), ids=PROPERTIES)
written = pytest.mark.parametrize("name", WRITTEN)


@rows
def test_a_row_is_complete(row: Property) -> None:
    assert row.label
    assert row.default == getattr(Shape(), row.name)
    assert row.measured in ("round trip", "goodput", "", *COUNTS)
    assert bool(row.netem) == (row.unit == "share")
    assert row.sparse == (row.name not in BEFORE)


@written
def test_what_people_write_is_known_wherever_links_are_described(name: str) -> None:
    for model in (LinkOptions, Link, RegionMatrix):
        assert name in model.model_fields
    assert name in setting.KEYS
    assert name in COLUMNS


@written
def test_an_example_survives_all_ways_to_write_it(name: str) -> None:
    numbers = number_of(name, PROPERTIES[name].example)
    assert setting.parse(in_words(numbers).split()) == numbers
    assert setting.parse(setting.describe(Shape(**numbers)).split()).items() >= numbers.items() - {("limit", None)}
    request = {"op": "set_link", "link": "w0-w1", "ab": numbers, "ba": {}}
    assert requests.check(request)[1]["ab"] == numbers


def test_defaults_that_came_later_are_left_out_of_plans() -> None:
    assert tuple(as_data(Shape())) == BEFORE
    shape = Shape(latency=0.1, corrupt=0.01, jitter_shape="pareto")
    assert Shape(**as_data(shape)) == shape
    assert unusual(shape) == {"latency": 0.1, "corrupt": 0.01, "jitter_shape": "pareto"}


@pytest.mark.parametrize("name", SHARES)
def test_a_share_reaches_netem_and_forbids_super_packets(name: str) -> None:
    shape = Shape(**{"latency": 0.01, "rate": 10**7, name: 0.01})
    assert disturbs(shape)
    told = netem.netem(shape, shape).percents
    assert told == {**dict.fromkeys(told, 0.0), PROPERTIES[name].netem: 1.0}
    assert netem.gso_segments([shape]) == 1


def test_a_link_that_is_down_only_loses() -> None:
    """netem lets a packet pass that is doubled and lost."""
    told = netem.netem(Shape(up=False, duplicate=0.5, corrupt=0.1, reorder=0.1), Shape()).percents
    assert told == {"loss": 100.0, "duplicate": 0.0, "prob_corrupt": 0.0, "prob_reorder": 0.0}


def test_only_uniform_jitter_is_told_as_a_half_width() -> None:
    told = {shape: netem.netem(Shape(jitter=0.01, jitter_shape=shape), Shape()) for shape in ("uniform", "normal")}
    assert (told["uniform"].jitter_us, told["normal"].jitter_us) == (17_320, 10_000)
    assert told["normal"].distribution == "normal"
