"""Measurements between two namespaces that a plain cable joins: no box, no netem."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable
from typing import TypeVar

import pytest
from pyroute2 import IPBatch

from testbed.errors import NetworkError
from testbed.network import measure, namespaces
from testbed.network.measure import End, Stream, Train
from testbed.network.netlink import Netlink, split

from .isolated import isolated

T = TypeVar("T")


def cable(mtu: int = 1500) -> tuple[End, End]:
    """Two ends, joined by a veth."""
    ends = []
    fds = [namespaces.create(), namespaces.create()]
    peer = {"ifname": "eth0", "net_ns_fd": fds[1], "mtu": mtu}
    request(Netlink(), "link", "add", ifname="eth0", kind="veth", net_ns_fd=fds[0], mtu=mtu, peer=peer)
    for number, fd in enumerate(fds):
        end = End(f"w{number}", fd, f"10.0.0.{number + 1}")
        request(Netlink(fd), "addr", "add", index=index_of(end), address=end.address, prefixlen=24)
        request(Netlink(fd), "link", "set", index=index_of(end), state="up")
        ends.append(end)
    for _ in range(50):  # it takes the kernel a moment to let packets through
        if measure.round_trips([(ends[0], ends[1])], 1, patience=0.1)[0]:
            return ends[0], ends[1]
    raise AssertionError("no packet came through")


def request(netlink: Netlink, what: str, *positional: str, **named: object) -> None:
    batch = IPBatch()
    getattr(batch, what)(*positional, **named)
    for one in split(bytes(batch.batch)):
        netlink.request(one)


def index_of(end: End) -> int:
    with namespaces.inside(end.namespace):
        return socket.if_nametoindex("eth0")


def between(work: Callable[[End, End], T], mtu: int = 1500) -> T:
    return isolated(lambda: work(*cable(mtu)))


def test_round_trips_are_counted_and_short() -> None:
    times = between(lambda one, other: measure.round_trips([(one, other), (other, one)], 5))
    assert [len(some) for some in times] == [5, 5]
    assert all(0 < time < 0.5 for some in times for time in some)


def test_waiting_without_spinning_measures_the_same_way() -> None:
    (times,) = between(lambda one, other: measure.round_trips([(one, other)], 5, spin=False))
    assert len(times) == 5


def test_an_echo_that_is_lost_is_left_out() -> None:
    def work(one: End, other: End) -> list[list[float]]:
        request(Netlink(other.namespace), "link", "set", index=index_of(other), state="down")
        return measure.round_trips([(one, other)], 2, patience=0.1)

    assert between(work) == [[]]


def test_nothing_stays_open() -> None:
    def work(one: End, other: End) -> None:
        gc.collect()  # what building the cable left
        before = sorted(os.listdir("/proc/self/fd"))
        measure.round_trips([(one, other)], 1)
        measure.tcp_goodput([(one, other)], 0.01, 0.05)
        measure.udp_train(one, other, 10e6, 5, drain=0.05)
        assert sorted(os.listdir("/proc/self/fd")) == before

    between(work)


def test_goodput_is_no_more_than_what_was_sent() -> None:
    """What the interface counted, less headers, in the time that it took."""

    def work(one: End, other: End) -> tuple[float, float]:
        (before,) = [link for link in Netlink(one.namespace).links() if link.name == "eth0"]
        (found,) = measure.tcp_goodput([(one, other)], 0.0, 0.5)
        (after,) = [link for link in Netlink(one.namespace).links() if link.name == "eth0"]
        return found, 8 * (after.tx_bytes - before.tx_bytes) / 0.5

    found, sent = between(work)
    assert 10e6 < found < 2 * sent  # the median of four parts of the window, so not exactly the mean


def test_goodput_where_there_is_no_way_is_nothing() -> None:
    def work(one: End, other: End) -> list[float]:
        lost = End("lost", namespaces.create(), "198.18.255.2")
        return measure.tcp_goodput([(lost, one)], 0.0, 0.1)

    assert between(work) == [0.0]


def test_data_that_arrives_damaged_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(one: End, other: End) -> None:
        real = measure.PATTERN
        flipped = bytearray(real)
        flipped[1000] ^= 1
        sent: list[int] = []

        class Tampering(socket.socket):
            def send(self, data: object, flags: int = 0) -> int:
                sent.append(1)
                return super().send(memoryview(flipped)[: measure.PERIOD], flags) if len(sent) == 1 else 0

        monkeypatch.setattr(measure.socket, "socket", Tampering)
        with pytest.raises(NetworkError, match="damaged"):
            measure.tcp_goodput([(one, other)], 0.05, 0.1)

    between(work)


def test_a_train_through_a_free_cable_loses_nothing() -> None:
    train = between(lambda one, other: measure.udp_train(one, other, 20e6, 200, drain=0.3))
    assert (train.sent, train.received, train.loss) == (200, 200, 0.0)
    assert train.rate is None or 0 < train.rate <= 20e6 * 1.5  # None where this machine was too busy to send so fast


def test_a_train_faster_than_can_be_paced_is_still_fetched_as_it_arrives() -> None:
    """Beyond the receive buffer; what is not fetched in time would look like the link's loss."""
    train = between(lambda one, other: measure.udp_train(one, other, 50e9, 4000, drain=0.3))
    assert train.loss < 0.5
    assert train.rate is None  # and it is not the cable that was too slow


def test_a_train_may_do_without_spinning() -> None:
    def work(one: End, other: End) -> list[Train]:
        return measure.udp_trains([measure.Order(one, other, 20e6, 200)], drain=0.3, spin=False)

    (train,) = between(work)
    assert train.received == 200


def test_trains_side_by_side_are_told_apart() -> None:
    def work(one: End, other: End) -> list[Train]:
        orders = [measure.Order(one, other, 20e6, 100), measure.Order(other, one, 10e6, 60)]
        return measure.udp_trains(orders, drain=0.3)

    assert [(train.sent, train.received) for train in between(work)] == [(100, 100), (60, 60)]


def test_a_train_of_larger_packets() -> None:
    train = between(lambda one, other: measure.udp_train(one, other, 50e6, 50, drain=0.3, mtu=9000), mtu=9000)
    assert train.received == 50


def test_a_stream_s_bytes_are_interpolated_at_the_ends_of_the_window() -> None:
    end = End("x", -1, "")
    stream = Stream(end, end, [(10.0, 0), (11.0, 1000), (13.0, 5000)])
    assert stream.goodput(10.0, 11.0) == 8000
    assert stream.goodput(10.5, 12.0) == 8 * (3000 - 500) / 1.5
    assert stream.goodput(13.0, 14.0) == 0
    assert Stream(end, end).goodput(1.0, 2.0) == 0


def test_the_loss_of_a_train() -> None:
    assert Train(100, tuple(range(75)), 1.0).loss == 0.25
    assert Train(0, (), 0.0).loss == 0.0
