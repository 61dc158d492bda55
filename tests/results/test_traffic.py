"""Which messages steps had, from traces made by hand, and what they need at least."""

from __future__ import annotations

import pytest

from testbed.plan.make import plan
from testbed.results import traffic
from testbed.scenario.load import loads
from testbed.worker.result import JobResult

from .test_exchanges import result

NETWORK = plan(
    loads(
        "workers: 3\nmethods: [dpsgd]\nnetwork:\n  topology: chain\n  link: {latency: 10ms, rate: 8mbit}\n"
        "  links: [{between: [w1, w2], latency: 40ms}]",
        "net.yaml",
    )
).network
BYTES = 0.0001  # seconds that each message of these takes to send


def sender(rank: int, *messages: tuple[int, int], steps: int) -> JobResult:
    """(step, peer)."""
    return result(rank, *(("send", step, peer, 0, 1) for step, peer in messages), steps=steps)


def test_a_static_graph_has_one_pattern():
    found = traffic.patterns(
        [sender(rank, *((step, peer) for step in range(5)), steps=5) for rank, peer in ((0, 1), (1, 0))]
    )
    (only,) = found
    assert (only.steps, only.rounds, only.messages) == ((0, 1, 2, 3, 4), 1.0, {(0, 1): 100.0, (1, 0): 100.0})
    assert traffic.floor(NETWORK, found, 5) == pytest.approx(0.010 + BYTES)
    assert traffic.rounds_per_step(found, 5) == 1


def test_a_graph_that_changes_costs_what_each_of_its_steps_costs():
    """w0-w1 in even steps, w1-w2 in odd ones: not a third of each in every step."""
    even, odd = [(0, 1), (2, 1)], [(1, 1), (3, 1)]
    found = traffic.patterns([sender(0, *even, steps=4), sender(2, *odd, steps=4)])
    assert sorted(one.steps for one in found) == [(0, 2), (1, 3)]
    assert traffic.floor(NETWORK, found, 4) == pytest.approx((0.010 + 0.040) / 2 + BYTES)
    assert traffic.rounds_per_step(found, 4) == 1


def test_steps_without_messages_cost_nothing():
    found = traffic.patterns([sender(0, (3, 1), (7, 1), steps=8)])
    assert traffic.floor(NETWORK, found, 8) == pytest.approx((0.010 + BYTES) / 4)
    assert traffic.rounds_per_step(found, 8) == 0.25


def test_the_longest_way_sets_the_pace():
    found = traffic.patterns(
        [sender(1, (0, 0), (0, 2), steps=1), sender(0, (0, 1), steps=1), sender(2, (0, 1), steps=1)]
    )
    slow = traffic.setting_the_pace(NETWORK, found)
    assert sorted(slow.itertuples(index=False, name=None)) == [(0, 1, 2), (0, 2, 1)]


def test_where_nothing_is_sent():
    assert traffic.patterns([result(0), result(1)]) == []
    assert traffic.floor(NETWORK, [], 5) == 0
    assert list(traffic.setting_the_pace(NETWORK, [])) == ["step", "source", "target"]
