"""The small netlink against this kernel, in a namespace of its own."""

from __future__ import annotations

import errno
import os
import socket
import time

import pytest
from pyroute2 import IPBatch

from testbed.network import namespaces
from testbed.network.netlink import Netlink, RefusedError, split

from .isolated import isolated


def encoded(*calls: tuple[str, tuple[object, ...], dict[str, object]]) -> list[bytes]:
    batch = IPBatch()
    for name, positional, named in calls:
        getattr(batch, name)(*positional, **named)
    return split(bytes(batch.batch))


def veth(one: str, other: str) -> bytes:
    return encoded(("link", ("add",), {"ifname": one, "kind": "veth", "peer": other}))[0]


def test_a_batch_falls_into_its_requests() -> None:
    requests = encoded(
        ("link", ("set",), {"index": 1, "state": "up"}),
        ("addr", ("add",), {"index": 1, "address": "10.0.0.1", "prefixlen": 32}),
        ("route", ("add",), {"dst": "10.1.0.0/16", "oif": 1}),
    )
    assert [len(one) for one in requests] == [int.from_bytes(one[:4], "little") for one in requests]
    assert len(requests) == 3
    assert split(b"") == []


def test_requests_are_done_when_they_return() -> None:
    def build() -> list[str]:
        netlink = Netlink()
        netlink.request(veth("one", "other"))
        return sorted(name for _, name in socket.if_nameindex())

    assert isolated(build) == ["lo", "one", "other"]


def test_what_the_kernel_refuses_is_an_error_with_its_number() -> None:
    def build() -> int | None:
        netlink = Netlink()
        netlink.request(veth("one", "other"))
        with pytest.raises(RefusedError) as caught:
            netlink.request(veth("one", "third"))
        netlink.request(veth("next", "third"))  # the socket still works
        return caught.value.errno

    assert isolated(build) == errno.EEXIST


def test_a_socket_stays_in_the_namespace_where_it_was_made() -> None:
    def build() -> tuple[list[str], list[str]]:
        fd = namespaces.create()
        there = Netlink(fd)
        there.request(veth("one", "other"))
        return sorted(link.name for link in there.links()), [link.name for link in Netlink().links()]

    assert isolated(build) == (["lo", "one", "other"], ["lo"])


def test_link_counters_are_the_kernels() -> None:
    def build() -> None:
        netlink = Netlink()
        (up,) = encoded(("link", ("set",), {"index": 1, "state": "up"}))
        netlink.request(up)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
            for _ in range(5):
                one.sendto(bytes(972), one.getsockname())
        (lo,) = netlink.links()
        assert (lo.tx_packets, lo.tx_bytes) == (5, 5 * (20 + 8 + 972))
        assert (lo.rx_packets, lo.rx_bytes) == (lo.tx_packets, lo.tx_bytes)
        assert (lo.rx_dropped, lo.tx_dropped) == (0, 0)

    isolated(build)


def test_qdisc_counters_are_those_of_qdiscs_that_somebody_made() -> None:
    def build() -> None:
        netlink = Netlink()
        netlink.request(veth("one", "other"))
        index = socket.if_nametoindex("one")
        assert netlink.qdiscs() == []
        for request in encoded(
            ("tc", ("add", "pfifo"), {"index": index, "handle": "1:", "limit": 3}),
            ("addr", ("add",), {"index": index, "address": "10.0.0.1", "prefixlen": 24}),
            ("link", ("set",), {"index": index, "state": "up"}),
            ("link", ("set",), {"index": socket.if_nametoindex("other"), "state": "up"}),
            (
                "neigh",
                ("add",),
                {"ifindex": index, "dst": "10.0.0.2", "lladdr": "02:00:00:00:00:01", "state": 0x80},
            ),
        ):
            netlink.request(request)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            (before,) = netlink.qdiscs()
            for _ in range(1000):  # the kernel takes a moment to see the carrier, and drops everything until then
                if before.packets:
                    break
                one.sendto(b"", ("10.0.0.2", 9))
                time.sleep(0.005)
                (before,) = netlink.qdiscs()
            for _ in range(4):
                one.sendto(bytes(100), ("10.0.0.2", 9))
        (after,) = netlink.qdiscs()
        assert after[0] == index
        assert after.packets - before.packets == 4
        assert after.bytes - before.bytes == 4 * (14 + 20 + 8 + 100)
        assert (after.drops, after.backlog_packets) == (0, 0)

    isolated(build)


def test_more_interfaces_than_fit_into_one_answer_are_all_read() -> None:
    def build() -> int:
        netlink = Netlink()
        for number in range(150):
            netlink.request(veth(f"a{number}", f"b{number}"))
        assert len(set(socket.if_nameindex())) == 301
        return len({link.name for link in netlink.links()})

    assert isolated(build) == 301


def test_a_closed_socket_is_closed() -> None:
    def build() -> None:
        before = len(os.listdir("/proc/self/fd"))
        netlink = Netlink()
        netlink.close()
        assert len(os.listdir("/proc/self/fd")) == before

    isolated(build)
