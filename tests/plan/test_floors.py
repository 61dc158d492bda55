"""The least time that messages need, by hand."""

import pytest
from results.made import compare
from results.test_comparison import result

from testbed.plan.floors import gossip_floor, ring_floor
from testbed.plan.make import plan
from testbed.results.above_floor import above_floor
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
    """Two messages cross w1>w2, of 4000 bytes together, and two come back."""
    messages = {(0, 2): 3000, (2, 0): 3000, (1, 2): 1000, (2, 1): 1000}
    assert gossip_floor(CHAIN, messages, rounds=1) == pytest.approx(0.020 + 0.004)


def test_two_that_wait_for_each_other_take_turns():
    """28 ms there, 12 ms back: on average neither waits longer than the mean of both ways."""
    uneven = network(
        "workers: 2\nnetwork:\n  topology: chain\n  link: {latency: 10ms, rate: 8mbit}\n"
        "  links: [{from: w0, to: w1, rate: 1mbit}]"
    )
    messages = {(0, 1): 2250, (1, 0): 2000}
    assert gossip_floor(uneven, messages, rounds=1) == pytest.approx((0.010 + 0.018 + 0.012) / 2)
    assert gossip_floor(uneven, {(0, 1): 9000, (1, 0): 1}, rounds=1) == pytest.approx(0.072), "no faster than the link"


def test_a_switch_adds_its_links_latencies():
    assert gossip_floor(STAR, {(1, 2): 1000}, rounds=1) == pytest.approx(0.010 + 0.001)


def test_unlimited_links_take_no_time_for_bytes():
    fast = network("workers: 3\nnetwork: {topology: ring, link: {latency: 10ms, rate: unlimited}}")
    assert gossip_floor(fast, {(0, 1): 1e12}, rounds=1) == pytest.approx(0.010)


def test_nothing_to_send_takes_no_time():
    assert gossip_floor(RING, {}, rounds=0) == 0


def test_a_ring_all_reduce():
    """2(n−1) rounds of a quarter of the bytes each; in pieces, they travel while others are being sent."""
    assert ring_floor(RING, 40_000) == pytest.approx(0.010 + 6 * 0.010)
    assert ring_floor(RING, 4_000) == pytest.approx(6 * 0.010), "no piece is sooner around"
    uphill = network(
        "workers: 4\nnetwork:\n  topology: ring\n  link: {latency: 10ms, rate: 8mbit}\n"
        "  links: [{from: w0, to: w1, rate: 1mbit}]"
    )
    assert ring_floor(uphill, 40_000) == pytest.approx(ring_floor(RING, 40_000)), "it goes the other way round"
    alone = network("workers: 1\nnetwork: {topology: complete}")
    assert ring_floor(alone, 40_000) == 0


def test_why_the_stock_all_reduce_is_far_above_its_floor():
    def why(wait: float, method: str = "allreduce", **values) -> str:
        parts = {"compute": 0.5, "codec": 0.0, "wait": wait, "mix": 0.0, "other": 0.0}
        return above_floor(compare([result(method, parts_s=parts, step_s=0.5 + wait, floor_s=0.1, **values)]))

    assert why(0.21).startswith("all-reduce waits 2.1 times its floor: Gloo")
    assert why(0.14) == ""  # though its step, with what it computes, takes longer
    assert why(0.41) == ""  # that is more than round trips take
    assert why(0.21, "dpsgd") == why(0.21, backend="nccl") == above_floor([]) == ""


def test_bbr_spreads_short_messages_over_part_of_a_round_trip():
    def why(exchange: float | None, congestion: str = "bbr", method: str = "choco") -> str:
        return above_floor(compare([result(method, exchange_s=exchange, floor_s=0.1, congestion=congestion)]))

    assert why(0.15).startswith("choco's messages took 1.5 times their floor: TCP's congestion control is bbr here")
    assert why(0.12) == why(0.15, "reno") == why(None) == why(0.15, method="allreduce") == ""


def test_of_a_sweep_the_worst_setting_is_told():
    swept = [
        result("choco", exchange_s=took, floor_s=0.1, congestion="bbr", setting=setting)
        for setting, took in (("latency=25ms", 0.18), ("latency=5ms", 0.1))
    ]
    assert above_floor(compare(swept)).startswith("choco's messages took 1.8 times their floor")
