"""Which pairs of workers are measured, and which of them at once. Pure."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from testbed.network.calibrate import choose_probes, in_scenario_time, rounds
from testbed.network.measure import ECHO_WIRE
from testbed.network.probes import Counted, Probe, Way
from testbed.plan.model import NetworkPlan
from testbed.report.links import link_rows
from testbed.results.surroundings import NETWORK, MeasuredNetwork
from testbed.verdict import Verdict

from .examples import network

TWO_SITES = """{
  regions: {eu: [w0, w1, w2], us: [w3, w4], asia: [w5]},
  within: {latency: 1ms, rate: 1gbit},
  between: [{regions: [eu, us], latency: 40ms, rate: 50mbit}, {regions: [us, asia], latency: 90ms}],
}"""
# w0 to w1 goes through s2, back it goes through s3: the other way is slow in that direction
ONE_WAY = """{
  topology: {links: [[w0, s1], [s1, s2], [s2, s4], [s4, w1], [s1, s3], [s3, s4]]},
  link: {latency: 5ms, rate: 100mbit},
  links: [{from: s4, to: s2, latency: 500ms, rate: 1mbit}, {from: s1, to: s3, latency: 500ms, rate: 1mbit}],
}"""
TOPOLOGIES = {
    "one": network("{topology: chain}", workers=1),
    "two": network("{topology: chain}", workers=2),
    "ring": network("{topology: ring}", workers=8),
    "chain": network("{topology: chain}", workers=7),
    "star": network("{topology: star}", workers=9),
    "complete": network("{topology: complete}", workers=6),
    "torus": network("{topology: {torus: 4x4}}"),
    "hypercube": network("{topology: hypercube}", workers=16),
    "tree": network("{topology: tree}", workers=15),
    "exponential": network("{topology: exponential}", workers=12),
    "regions": network(TWO_SITES),
    "one way": network(ONE_WAY),
    "switches": network("{topology: {links: [[w0, s1], [s1, s2], [s2, s3], [s3, w1], [s2, w2]]}}"),
}
everywhere = pytest.mark.parametrize("plan", TOPOLOGIES.values(), ids=TOPOLOGIES)


def hops_of(plan: NetworkPlan, probes: list[Probe]) -> set[tuple[str, str]]:
    """The directed links that the probes' packets take."""
    chosen = {(probe.source, probe.target) for probe in probes}
    paths = [path for path in plan.paths if (path.source, path.target) in chosen]
    return {hop for path in paths for way in (path.hops, path.back) for hop in pairwise(way)}


@everywhere
def test_the_probes_cross_every_link_that_any_packet_takes(plan: NetworkPlan) -> None:
    taken = {hop for path in plan.paths for way in (path.hops, path.back) for hop in pairwise(way)}
    assert hops_of(plan, choose_probes(plan)) == taken


@everywhere
def test_no_probe_is_there_for_nothing(plan: NetworkPlan) -> None:
    probes = choose_probes(plan)
    for number in range(len(probes)):
        before = hops_of(plan, probes[:number])
        assert hops_of(plan, [probes[number]]) - before


@pytest.mark.parametrize("name", ["ring", "chain", "complete", "torus", "hypercube", "tree", "exponential"])
def test_between_neighbours_a_probe_is_one_link(name: str) -> None:
    plan = TOPOLOGIES[name]
    probes = choose_probes(plan)
    assert sorted(probe.links for probe in probes) == sorted((link.name,) for link in plan.links)


def test_through_a_switch_a_probe_is_the_path() -> None:
    probes = choose_probes(TOPOLOGIES["star"])
    assert {len(probe.links) for probe in probes} <= {1, 2}
    far = next(probe for probe in choose_probes(TOPOLOGIES["regions"]) if {probe.source, probe.target} == {"w3", "w5"})
    assert far.hops == 3
    assert far.there.rate == 100_000_000
    assert far.latency == pytest.approx(2 * (0.001 + 0.09 + 0.001), rel=0.01)


def test_where_all_meet_at_a_switch_pairs_do_not_share_a_link() -> None:
    """Else they would be measured one after another."""
    plan = network("{topology: {links: [[w0, s], [w1, s], [w2, s], [w3, s], [w4, s], [w5, s]]}, link: {rate: 10mbit}}")
    probes = choose_probes(plan)
    assert [probe.name for probe in probes] == ["w0-w1", "w2-w3", "w4-w5"]
    assert rounds(probes, True) == [[0, 1, 2]]


def test_all_links_of_a_slow_ring_are_measured_at_once() -> None:
    probes = choose_probes(network("{topology: ring, link: {rate: 20mbit}}", workers=6))
    assert rounds(probes, True) == [list(range(6))]


def test_what_is_asked_of_a_path() -> None:
    plan = network(
        "{topology: chain, link: {latency: 5ms, rate: 8mbit, loss: 10%},"
        " links: [{from: w1, to: w0, latency: 20ms, rate: 1mbit, jitter: 2ms}]}",
        workers=2,
    )
    (probe,) = choose_probes(plan)
    sending = ECHO_WIRE / 1e6 + 8 * ECHO_WIRE / 1e6
    assert probe.latency == pytest.approx(0.025 + sending)
    assert probe.jitter == 0.002
    assert (probe.there.rate, probe.back.rate) == (8_000_000, 1_000_000)
    assert probe.there.loss == pytest.approx(0.1)


def test_a_way_back_that_is_another_way_is_known() -> None:
    (probe,) = choose_probes(TOPOLOGIES["one way"])
    assert probe.links == ("w0-s1", "s1-s2", "s2-s4", "s4-w1")
    assert probe.uses == {link.name for link in TOPOLOGIES["one way"].links}
    assert probe.back.rate == 100_000_000


@everywhere
@pytest.mark.parametrize("forward", [True, False])
def test_in_a_round_nothing_shares_a_link(plan: NetworkPlan, forward: bool) -> None:
    probes = choose_probes(plan)
    found = rounds(probes, forward)
    assert sorted(number for group in found for number in group) == list(range(len(probes)))
    for group in found:
        used = Counter(one for n in group for one in probes[n].uses)
        assert max(used.values()) == 1


def test_a_round_is_no_more_than_the_machine_carries() -> None:
    plan = network("{topology: ring, link: {rate: 150mbit}, links: [{between: [w2, w3], rate: 900mbit}]}", workers=8)
    probes = choose_probes(plan)
    for group in rounds(probes, True, side_by_side=400e6):
        load = sum(probes[n].there.rate or 0 for n in group)
        assert load <= 400e6 or len(group) == 1


def test_links_without_a_limit_are_measured_alone() -> None:
    probes = choose_probes(network("{topology: ring, link: {rate: unlimited}}", workers=6))
    assert all(len(group) == 1 for group in rounds(probes, True))


def test_links_that_lose_nearly_all_need_not_answer() -> None:
    def silent(loss: str) -> bool:
        (probe,) = choose_probes(network(f"{{topology: chain, link: {{loss: {loss}}}}}", workers=2))
        return probe.may_be_silent

    assert not silent("0%")
    assert not silent("20%")
    assert silent("99%")


def test_what_is_asked_of_a_network_in_slow_motion_is_what_its_scenario_asks_for() -> None:
    plan = TOPOLOGIES["regions"]
    slow = replace(plan, slow_motion=5.0)
    for asked, stretched in zip(choose_probes(plan), choose_probes(slow.stretched()), strict=True):
        found = in_scenario_time(stretched, 5.0)
        assert stretched.latency == pytest.approx(5 * asked.latency)
        assert found.latency == pytest.approx(asked.latency)
        assert (found.there.rate, found.back.rate) == (asked.there.rate, asked.back.rate)


def test_measurements_become_scenario_time() -> None:
    (probe,) = choose_probes(TOPOLOGIES["two"])
    way = replace(probe.there, goodput=2e6, lost=0.1)
    measured = replace(probe, rtt=0.4, spread=0.04, jitter=0.08, there=way)
    found = in_scenario_time(measured, 4.0)
    assert (found.rtt, found.spread, found.jitter) == (0.1, 0.01, 0.02)
    assert (found.there.goodput, found.there.lost, found.back.goodput) == (8e6, 0.1, None)
    assert in_scenario_time(measured, 1.0) == measured


def test_what_is_asked_of_a_path_that_disturbs_packets() -> None:
    plan = network(
        "{topology: {links: [[w0, s], [s, w1]]}, links: [{between: [w0, s], corrupt: 10%, duplicate: 20%},"
        " {from: s, to: w1, reorder: 5%}]}",
    )
    (probe,) = choose_probes(plan)
    assert probe.there.whole == pytest.approx(0.9)
    assert {name: one.asked for name, one in probe.there.shares.items()} == {
        "lost": pytest.approx(0.8 * 0.1 + 0.2 * 0.1**2),
        "repeated": pytest.approx(0.2 * 0.9**2),
        "early": pytest.approx(0.05 * (1 - probe.there.loss)),
    }
    assert "early" not in probe.back.shares
    assert probe.there.disturbed


def test_each_count_is_judged_and_told() -> None:
    way = Way(10**7, 0.01, lost=0.01, packets=1500, counted={"early": Counted(0.05, 0.2), "repeated": Counted(0.02)})
    verdict = way.judge_shares("w0>w1")
    assert (verdict.grade, verdict.reasons) == (
        "invalid",
        ("w0>w1: 20.00% of the packets early instead of 5.00%",),
    )
    probe = Probe("w0", "w1", ("w0-w1",), 0.01, 0.0, way, Way(10**7, 0.0))
    headings, (row,) = link_rows([probe], 1500)
    told = dict(zip(headings, row, strict=True))
    assert (told["early there"], told["early back"]) == ("5.00% / 20.00%", "")
    assert told["repeated there"] == "2.00% / –"


def test_what_was_counted_is_stored_only_where_it_was_asked_for() -> None:
    usual, counted = Way(10**7, 0.0), Way(10**7, 0.0, counted={"early": Counted(0.1, 0.2)}, whole=0.9)
    probe = Probe("w0", "w1", ("w0-w1",), 0.01, 0.0, usual, counted, 0.01)
    found = MeasuredNetwork(0, "", (probe,), Verdict("faithful"), 0)
    (stored,) = found.stored()["probes"]
    assert {"counted", "whole"} & stored["there"].keys() == set()
    assert NETWORK.validate_json(json.dumps(found.stored(), default=list)) == found
