"""A minimal netlink: send encoded requests, wait for acknowledgements, read link and qdisc counters.

Requests are encoded elsewhere by pyroute2 (messages.py). This file uses the standard library only, so that the agent
starts quickly in the delay box, where importing pyroute2 takes over a second (and dataclasses a tenth).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from testbed.network.namespaces import inside

_HEADER = struct.Struct("=IHHII")
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _DUMP = 1, 4, 0x300
_GETLINK, _GETQDISC = 18, 38
_IFLA_IFNAME, _IFLA_STATS64 = 3, 23
_TCA_STATS2, _TCA_STATS_BASIC, _TCA_STATS_QUEUE = 7, 1, 3


class RefusedError(OSError):
    """The kernel answered a request with an error."""


class QdiscStats(NamedTuple):
    """What a qdisc has done since it was made, and what is queued in it now."""

    interface: int  # its index
    bytes: int
    packets: int
    drops: int
    backlog_bytes: int
    backlog_packets: int


class LinkStats(NamedTuple):
    """An interface's counters."""

    interface: int  # its index
    name: str
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


class Netlink:
    """A route netlink socket in one network namespace."""

    def __init__(self, namespace: int | None = None) -> None:
        if namespace is None:
            self._open()
        else:
            with inside(namespace):
                self._open()

    def _open(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))

    def close(self) -> None:
        self._socket.close()

    def request(self, message: bytes) -> None:
        """Send one encoded request and wait for its acknowledgement."""
        length, kind, flags, sequence, _ = _HEADER.unpack_from(message)
        head = _HEADER.pack(length, kind, flags | _REQUEST | _ACK, sequence, 0)
        self._socket.send(head + message[_HEADER.size :])
        for kind, body in _messages(self._socket.recv(65536)):
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", body)
                if code:
                    raise RefusedError(-code, os.strerror(-code))
                return

    def _dump(self, kind: int, body: bytes) -> Iterator[bytes]:
        length = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(length, kind, _REQUEST | _DUMP, 1, 0) + body)
        while True:
            for answer, data in _messages(self._socket.recv(262144)):
                if answer == _DONE:
                    return
                if answer == _ERROR:
                    (code,) = struct.unpack_from("=i", data)
                    raise RefusedError(-code, os.strerror(-code))
                yield data

    def qdiscs(self) -> list[QdiscStats]:
        """Return the counters of every root qdisc that has its own handle (a default one has handle 0)."""
        found = []
        for data in self._dump(_GETQDISC, bytes(20)):
            index, handle = struct.unpack_from("=4xiI", data)
            if not handle:
                continue
            stats = dict(_attributes(dict(_attributes(data[20:])).get(_TCA_STATS2, b"")))
            sent, packets = struct.unpack_from("=QI", stats.get(_TCA_STATS_BASIC, bytes(16)))
            queued, backlog, drops = struct.unpack_from("=III", stats.get(_TCA_STATS_QUEUE, bytes(20)))
            found.append(QdiscStats(index, sent, packets, drops, backlog, queued))
        return found

    def links(self) -> list[LinkStats]:
        """Return the counters of every interface."""
        found = []
        for data in self._dump(_GETLINK, bytes(16)):
            (index,) = struct.unpack_from("=4xi", data)
            attributes = dict(_attributes(data[16:]))
            name = attributes[_IFLA_IFNAME].rstrip(b"\0").decode()
            rxp, txp, rxb, txb, _, _, rxd, txd = struct.unpack_from("=8Q", attributes.get(_IFLA_STATS64, bytes(64)))
            found.append(LinkStats(index, name, rxp, txp, rxb, txb, rxd, txd))
        return found


def split(batch: bytes) -> list[bytes]:
    """Split a batch as pyroute2's encoder leaves it into its messages."""
    found, at = [], 0
    while at < len(batch):
        (length,) = struct.unpack_from("=I", batch, at)
        found.append(batch[at : at + length])
        at += (length + 3) & ~3
    return found


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, _, _, _ = _HEADER.unpack_from(data, at)
        yield kind, data[at + _HEADER.size : at + length]
        at += (length + 3) & ~3


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3
