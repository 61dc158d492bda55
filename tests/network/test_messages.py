"""A plan's netlink requests, decoded by pyroute2 to what the kernel will read."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from pyroute2.netlink.rtnl.marshal import MarshalRtnl

from testbed.link import distributions
from testbed.link.shape import Shape
from testbed.network import messages
from testbed.network.agent import FIRST_NAMESPACE_FD, FIRST_PORT_INDEX
from testbed.network.messages import Message

from .examples import network

TICK = 64e-9  # netem counts time in these
EVERYTHING = 2**32 - 1  # as a share

CHAIN = network(
    """
  topology: chain
  link: {latency: 5ms, rate: 100mbit, loss: 1%, buffer: 10ms}
  links:
    - {from: w1, to: w0, latency: 20ms, rate: 10mbit, jitter: 2ms, loss: 0%}
  mtu: 1400
""",
    workers=3,
)
NETEM = messages.netem_on(0.0)


def decoded(found: Iterable[Message | bytes]) -> list[tuple[int | None, Any]]:
    """(router, message) of each request."""
    result = []
    for one in found:
        data = bytes.fromhex(one.text) if isinstance(one, Message) else one
        (message,) = MarshalRtnl().parse(data)
        result.append((one.router if isinstance(one, Message) else None, message))
    return result


def of_kind(found: Iterable[Message | bytes], event: str) -> list[tuple[int | None, Any]]:
    return [(router, message) for router, message in decoded(found) if message["event"] == event]


def netem_of(message: Any) -> dict[str, float]:
    options = message.get_attr("TCA_OPTIONS")
    return {
        "delay": options["delay"] * TICK,
        "jitter": options["jitter"] * TICK,
        "loss": options["loss"] / EVERYTHING,
        "limit": options["limit"],
        "rate": options.get_attr("TCA_NETEM_RATE")["rate"],
    }


def close(**numbers: float) -> Any:
    return pytest.approx(numbers, rel=1e-4)


def test_each_end_of_a_link_shapes_its_own_direction_in_the_kernels_units() -> None:
    found = {(router, message["index"]): message for router, message in of_kind(of_links(), "RTM_NEWQDISC")}
    slow, fast = netem_of(found[1, 10_001]), netem_of(found[0, 10_000])
    assert fast == close(delay=0.005, jitter=0, loss=0.01, limit=45 + 89, rate=12_500_000)
    assert slow == close(delay=0.02, jitter=0.002 * 3**0.5, loss=0, limit=18 + 9 + 6, rate=1_250_000)
    assert all(message["handle"] == 0x10000 and message["parent"] == 0xFFFFFFFF for message in found.values())
    assert len(found) == 4


def of_links() -> list[Message]:
    return messages.link_messages(CHAIN, NETEM)


def test_the_rate_is_not_sent_as_an_estimator_too() -> None:
    """The kernel would refuse it."""
    for _, message in of_kind(of_links(), "RTM_NEWQDISC"):
        assert message.get_attr("TCA_RATE") is None


def test_a_link_is_made_straight_into_its_routers() -> None:
    (_, link), _ = [
        (router, message) for router, message in of_kind(of_links(), "RTM_NEWLINK") if router == messages.ROOT
    ]
    peer = link.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert (link["index"], peer["index"]) == (10_000, 10_001)
    assert link.get_attr("IFLA_NET_NS_FD") == FIRST_NAMESPACE_FD
    assert peer.get_attr("IFLA_NET_NS_FD") == FIRST_NAMESPACE_FD + 1
    assert link.get_attr("IFLA_MTU") == peer.get_attr("IFLA_MTU") == 1400
    assert link.get_attr("IFLA_ADDRESS") != peer.get_attr("IFLA_ADDRESS")


def test_shaping_is_there_before_the_link_is_up() -> None:
    order = [(router, message["event"], message.get("state")) for router, message in decoded(of_links())]
    for router in (0, 1):
        first = order.index((router, "RTM_NEWQDISC", None))
        assert first < order.index((router, "RTM_NEWLINK", "up"))


def test_neighbours_are_told_and_never_asked_for() -> None:
    link = CHAIN.links[0]
    found = {router: message for router, message in of_kind(of_links(), "RTM_NEWNEIGH") if message["ifindex"] < 10_002}
    assert found[0].get_attr("NDA_DST") == link.address_b
    assert found[1].get_attr("NDA_DST") == link.address_a
    assert found[0]["state"] == found[1]["state"] == messages.PERMANENT
    links = [message for router, message in of_kind(of_links(), "RTM_NEWLINK") if router == messages.ROOT]
    peer = links[0].get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert found[0].get_attr("NDA_LLADDR") == peer.get_attr("IFLA_ADDRESS")
    assert found[1].get_attr("NDA_LLADDR") == links[0].get_attr("IFLA_ADDRESS")


def test_routes_lead_to_the_other_end_of_their_link() -> None:
    found: dict[int | None, list[tuple[Any, ...]]] = {}
    for router, message in of_kind(of_links(), "RTM_NEWROUTE"):
        row = (
            message.get_attr("RTA_DST"),
            message["dst_len"],
            message.get_attr("RTA_GATEWAY"),
            message.get_attr("RTA_OIF"),
        )
        found.setdefault(router, []).append(row)
    left, right = CHAIN.links
    assert found[0] == [(None, 0, left.address_b, 10_000)]
    assert (None, 0, left.address_a, 10_001) in found[1]
    assert ("198.18.0.8", 29, right.address_b, 10_002) in found[1]
    assert found[2] == [(None, 0, right.address_a, 10_003)]


def test_interface_names_and_addresses_are_distinct_and_short_in_a_large_network() -> None:
    many = messages.link_messages(network("{topology: complete}", workers=24), NETEM)
    names, macs, indexes = [], [], []
    for router, message in of_kind(many, "RTM_NEWLINK"):
        if router == messages.ROOT:
            peer = message.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
            names += [message.get_attr("IFLA_IFNAME"), peer.get_attr("IFLA_IFNAME")]
            macs += [message.get_attr("IFLA_ADDRESS"), peer.get_attr("IFLA_ADDRESS")]
            indexes += [message["index"], peer["index"]]
    assert len(set(names)) == len(set(macs)) == len(set(indexes)) == 24 * 23
    assert max(map(len, names)) <= 15
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs)  # of our own making, and for one interface


def test_a_change_tells_every_number_of_both_ends_again() -> None:
    """The kernel keeps what is left out of a change."""
    link = replace(CHAIN.links[0], ab=Shape(), ba=Shape(latency=0.1, rate=10**6, up=False))
    found = of_kind(messages.change_messages(CHAIN, CHAIN.links[0], link, NETEM), "RTM_NEWQDISC")
    (a_router, a), (b_router, b) = found
    assert (a_router, b_router) == (0, 1)
    assert netem_of(a) == close(delay=0, jitter=0, loss=0, limit=100_000, rate=0)
    assert netem_of(b) == close(delay=0.1, jitter=0, loss=1, limit=9 + 100, rate=125_000)
    create = 0x400
    assert not a["header"]["flags"] & create  # a new qdisc would drop what is queued


def test_shares_are_told_even_where_they_are_nothing() -> None:
    """pyroute2's own encoder leaves corruption out where it is 0, and the kernel would keep what it had."""
    before = replace(CHAIN.links[0], ab=Shape(latency=0.1, corrupt=0.01, duplicate=0.02, reorder=0.03))
    told, cleared = (
        of_kind(messages.change_messages(CHAIN, CHAIN.links[0], link, NETEM), "RTM_NEWQDISC")[0][1].get_attr(
            "TCA_OPTIONS"
        )
        for link in (before, replace(before, ab=Shape()))
    )
    assert told.get_attr("TCA_NETEM_CORRUPT")["prob_corrupt"] / EVERYTHING == pytest.approx(0.01)
    assert told.get_attr("TCA_NETEM_REORDER")["prob_reorder"] / EVERYTHING == pytest.approx(0.03)
    assert (told["duplicate"] / EVERYTHING, told["gap"]) == (pytest.approx(0.02), 1)
    assert cleared.get_attr("TCA_NETEM_CORRUPT")["prob_corrupt"] == 0
    assert (cleared["duplicate"], cleared["gap"]) == (0, 0)  # without a gap nothing is reordered


def test_a_table_of_delays_is_sent_where_there_is_a_shape_and_where_one_ends() -> None:
    def table(before: str, after: str) -> bytes | None:
        old, new = (replace(CHAIN.links[0], ab=Shape(jitter=0.01, jitter_shape=one)) for one in (before, after))
        found = of_kind(messages.change_messages(CHAIN, old, new, NETEM), "RTM_NEWQDISC")[0][1]
        sent: bytes | None = found.get_attr("TCA_OPTIONS").get_attr("TCA_NETEM_DELAY_DIST")
        return sent

    def entries(name: str) -> bytes:
        return array("h", distributions.table(name)).tobytes()

    assert table("uniform", "uniform") is None
    assert table("uniform", "pareto") == table("pareto", "pareto") == entries("pareto")
    assert table("pareto", "uniform") == entries("uniform")


def test_the_overhead_of_the_box_is_taken_off_when_a_link_is_made_and_when_it_changes() -> None:
    attach = messages.netem_on(0.001)
    made = of_kind(messages.link_messages(CHAIN, attach), "RTM_NEWQDISC")
    changed = of_kind(messages.change_messages(CHAIN, CHAIN.links[0], CHAIN.links[0], attach), "RTM_NEWQDISC")
    assert netem_of(made[0][1])["delay"] == netem_of(changed[0][1])["delay"] == pytest.approx(0.004)


def test_ports_get_the_gateways_of_their_workers() -> None:
    ports = {worker.rank: 50 + worker.rank for worker in CHAIN.workers}
    moved = of_kind(messages.move_messages(CHAIN, ports), "RTM_NEWLINK")
    assert [(message["index"], message.get_attr("IFLA_NET_NS_FD")) for _, message in moved] == [
        (50, FIRST_NAMESPACE_FD),
        (51, FIRST_NAMESPACE_FD + 1),
        (52, FIRST_NAMESPACE_FD + 2),
    ]
    configured = of_kind(messages.port_messages(CHAIN, ports), "RTM_NEWADDR")
    assert [
        (router, message["index"], message.get_attr("IFA_LOCAL"), message["prefixlen"])
        for router, message in configured
    ] == [(worker.rank, 50 + worker.rank, worker.gateway, 30) for worker in CHAIN.workers]


def test_a_workers_cable_and_side() -> None:
    worker = CHAIN.workers[1]
    ((_, cable),) = decoded(messages.worker_cable(7, 8, worker, 3, 1400))
    peer = cable.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_DATA").get_attr("VETH_INFO_PEER")
    assert (cable["index"], cable.get_attr("IFLA_IFNAME"), cable.get_attr("IFLA_NET_NS_FD")) == (
        FIRST_PORT_INDEX + 1,
        "p1",
        7,
    )
    assert (peer["index"], peer.get_attr("IFLA_IFNAME"), peer.get_attr("IFLA_NET_NS_FD")) == (2, "eth0", 8)
    assert (peer.get_attr("IFLA_MTU"), peer.get_attr("IFLA_GSO_MAX_SEGS")) == (1400, 3)
    side = messages.worker_side(worker)
    ((_, address),) = of_kind(side, "RTM_NEWADDR")
    assert (address["index"], address.get_attr("IFA_LOCAL"), address["prefixlen"]) == (2, worker.address, 30)
    ((_, route),) = of_kind(side, "RTM_NEWROUTE")
    assert (route.get_attr("RTA_GATEWAY"), route["dst_len"]) == (worker.gateway, 0)


def test_in_slow_motion_tcp_waits_longer_before_it_sends_again() -> None:
    worker = CHAIN.workers[1]
    ((_, route),) = of_kind(messages.worker_side(worker), "RTM_NEWROUTE")
    assert route.get_attr("RTA_METRICS") is None
    ((_, route),) = of_kind(messages.worker_side(worker, 2.5), "RTM_NEWROUTE")
    metrics = route.get_attr("RTA_METRICS")
    assert metrics.get_attr("RTAX_RTO_MIN") == 500  # milliseconds
    assert metrics.get_attr("RTAX_LOCK") == 1 << messages.RTAX_RTO_MIN  # else TCP takes no notice


def test_a_partition_is_black_holes_for_what_a_worker_itself_sends() -> None:
    star = network("{topology: star}", workers=8)
    blocked = {"w0": ["w4", "w5", "w6", "w7"], "w4": ["w0", "w1"]}
    found = messages.partition_messages(star, {}, blocked)
    rules = dict(of_kind(found, "RTM_NEWRULE"))
    assert {router: rule.get_attr("FRA_SRC") for router, rule in rules.items()} == {0: "198.18.0.2", 4: "198.18.0.18"}
    assert all(
        rule["src_len"] == 32 and rule.get_attr("FRA_TABLE") == messages.PARTITION_TABLE for rule in rules.values()
    )
    routes = [(router, m.get_attr("RTA_DST"), m["dst_len"], m["type"]) for router, m in of_kind(found, "RTM_NEWROUTE")]
    blackhole = 6
    assert routes == [
        (0, "198.18.0.16", 28, blackhole),
        (4, "198.18.0.0", 29, blackhole),
    ]  # w4…w7 and w0, w1 as one each


def test_from_one_partition_to_another_only_the_difference_is_sent() -> None:
    star = network("{topology: star}", workers=8)
    found = messages.partition_messages(star, {"w0": ["w2"], "w1": ["w2"]}, {"w0": ["w2", "w5"]})
    assert [(router, message["event"]) for router, message in decoded(found)] == [
        (0, "RTM_NEWROUTE"),
        (1, "RTM_DELROUTE"),
        (1, "RTM_DELRULE"),
    ]
    assert messages.partition_messages(star, {"w0": ["w2"]}, {"w0": ["w2"]}) == []
