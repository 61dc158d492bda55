"""The least time that messages need, by hand."""

import pytest

from testbed.plan import plan
from testbed.results.floors import gossip_floor, ring_floor
from testbed.scenario.load import loads


def network(text: str):
    return plan(loads(f"methods: [dpsgd]\n{text}", "net.yaml")).network


RING = network("workers: 4\nnetwork: {topology: ring, link: {latency: 10ms, rate: 8mbit}}")  # a byte is a microsecond
STAR = network("workers: 3\nnetwork: {topology: star, link: {latency: 5ms, rate: 8mbit}}")
CHAIN = network("workers: 3\nnetwork: {topology: chain, link: {latency: 10ms, rate: 8mbit}}")


def test_one_message_to_each_neighbour():
    messages = {(i, (i + d) % 4): 5000 for i in range(4) for d in (1, -1)}
    assert gossip_floor(RING, messages, rounds=1) == pytest.approx(0.010 + 0.005)


def test_every_round_costs_a_latency_and_bytes_cost_once():
    assert gossip_floor(RING, {(0, 1): 5000.0}, rounds=3) == pytest.approx(0.030 + 0.005)


def test_the_busiest_direction_of_a_link_sets_the_pace():
    """Both of these cross w1>w2; the other direction is free."""
    assert gossip_floor(CHAIN, {(0, 2): 3000, (1, 2): 1000, (2, 1): 3999}, rounds=1) == pytest.approx(0.020 + 0.004)


def test_a_switch_adds_its_links_latencies():
    assert gossip_floor(STAR, {(1, 2): 1000}, rounds=1) == pytest.approx(0.010 + 0.001)


def test_unlimited_links_take_no_time_for_bytes():
    fast = network("workers: 3\nnetwork: {topology: ring, link: {latency: 10ms, rate: unlimited}}")
    assert gossip_floor(fast, {(0, 1): 1e12}, rounds=1) == pytest.approx(0.010)


def test_nothing_to_send_takes_no_time():
    assert gossip_floor(RING, {}, rounds=0) == 0


def test_a_ring_all_reduce():
    """2(n−1) rounds of a quarter of the bytes each, all directions in use at once."""
    assert ring_floor(RING, 40_000) == pytest.approx(6 * 0.010 + 6 * 0.010)
    alone = network("workers: 1\nnetwork: {topology: complete}")
    assert ring_floor(alone, 40_000) == 0
