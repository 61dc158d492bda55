"""Swept values as columns."""

import math

import pytest

from testbed.results import swept
from testbed.scenario.load import loads
from testbed.scenario.sweep import variants

SCENARIO = """
workers: 4
methods: [allreduce]
sweep:
  network.link.latency: [5ms, 0s]
  network.topology: [ring, complete]
  network.link.rate: [unlimited, 1.5mbit, 10kbit]
"""


def test_variants_are_numbered_as_the_plan_numbers_them():
    scenario = loads(SCENARIO)
    assert swept.settings(scenario.sweep) == [dict(variant.settings) for variant in variants(scenario)]


def test_columns_are_numbers_in_base_units_where_all_values_are():
    last = swept.columns(loads(SCENARIO).sweep)[-1]
    assert last == {
        "latency": 0.0,
        "latency_text": "0s",
        "topology": "complete",
        "topology_text": "complete",
        "rate": 10_000.0,
        "rate_text": "10kbit",
    }


@pytest.mark.parametrize(
    ("value", "number"),
    [("5ms", 0.005), ("1.4gbit", 1.4e9), ("unlimited", math.inf), ("0.1%", 0.001), ("2gb", 2e9), ("8bit", 8.0),
     (3, 3.0), (0.5, 0.5), ("ring", None), (True, None), (None, None), ([1], None)],
)  # fmt: skip
def test_number(value, number):
    assert swept.number(value) == (pytest.approx(number) if number is not None else None)
