"""This process's own TCP connections: their kernel counters and the rate at which they may send. For bytes that DDP
sends by itself, and for pacing Gloo's connections, which it does not expose."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from struct import pack, unpack_from

_TCP_INFO_SIZE = 216
_NOTHING = bytes(_TCP_INFO_SIZE)
_SIOCGIFADDR = 0x8915
_SO_MAX_PACING_RATE = 47  # the socket module does not know it
NO_LIMIT = (1 << 64) - 1

Endpoint = tuple[str, int]


@dataclass(frozen=True)
class Connection:
    """An open connection of this process, by descriptor. It is not held open: its owner may close it at any time."""

    fd: int
    here: Endpoint
    there: Endpoint


@dataclass(frozen=True)
class Counters:
    """What TCP_INFO says of a connection; times in seconds."""

    acked: int  # bytes
    sent: int  # bytes, with those sent again
    sent_again: int
    busy: float  # with data under way
    held_up: float  # of that, the receiver took no more
    rtt: float
    min_rtt: float
    delivery_rate: int  # bytes per second, of the last round trip that was not short of data


def tcp_bytes_sent() -> int:
    """Return bytes sent by this process's open TCP connections, without retransmissions, TCP and lower headers."""
    return sum(one.sent - one.sent_again for one in _all_counters())


def tcp_bytes_again() -> int:
    """Return the bytes they had to send again, because the network had lost them or was late."""
    return sum(one.sent_again for one in _all_counters())


def connections() -> set[Connection]:
    """Return all that are open and have a peer."""
    found = set()
    for fd in _sockets():
        with _copy(fd) as copy:
            if copy is None:
                continue
            try:
                found.add(Connection(fd, copy.getsockname()[:2], copy.getpeername()[:2]))
            except OSError:
                continue  # it listens, or is closed already
    return found


def counters(connection: Connection) -> Counters | None:
    """Return a connection's counters; None: it is closed."""
    with _same(connection) as copy:
        return None if copy is None else _counters(copy)


def limit_rate(connection: Connection, bytes_per_second: float | None) -> bool:
    """Limit the send rate, evenly; None: no limit. The kernel needs no qdisc for it. False: it is closed."""
    rate = NO_LIMIT if bytes_per_second is None else max(1, min(NO_LIMIT, round(bytes_per_second)))
    with _same(connection) as copy:
        if copy is None:
            return False
        try:
            copy.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pack("=Q", rate))
        except OSError:
            return False  # a kernel that cannot: it then sends as it always did
        return True


def limited_rate(connection: Connection) -> int | None:
    """Return the limit in bytes per second; None: no limit, or it is closed."""
    with _same(connection) as copy:
        if copy is None:
            return None
        raw = copy.getsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, 8)
    (rate,) = unpack_from("=Q" if len(raw) == 8 else "=I", raw)
    return None if rate in (NO_LIMIT, NO_LIMIT >> 32) else int(rate)


def address_of(interface: str) -> str:
    """Return the IPv4 address of an interface; OSError where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, pack("256s", interface.encode()))
    return socket.inet_ntoa(answer[20:24])


def _sockets() -> list[int]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                found.append(int(name))
        except OSError:
            continue  # the directory's own descriptor, already closed
    return found


@contextmanager
def _copy(fd: int) -> Iterator[socket.socket | None]:
    """Duplicate a TCP socket for a moment; None where another thread has closed it meanwhile, or its number was reused.
    Kept any longer, it would keep a connection open that its owner closes."""
    try:
        duplicate = os.dup(fd)
    except OSError:
        yield None
        return
    try:
        copy = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        yield None
        return
    with copy:
        tcp = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM
        yield copy if tcp else None


@contextmanager
def _same(connection: Connection) -> Iterator[socket.socket | None]:
    """Yield the socket, if its number still is that connection."""
    with _copy(connection.fd) as copy:
        try:
            same = copy is not None and (copy.getsockname()[:2], copy.getpeername()[:2]) == (
                connection.here,
                connection.there,
            )
        except OSError:
            same = False
        yield copy if same else None


def _all_counters() -> Iterator[Counters]:
    for fd in _sockets():
        with _copy(fd) as copy:
            if copy is not None:
                yield _counters(copy)


def _counters(copy: socket.socket) -> Counters:
    """Read the counters: all 0 on kernels before 4.19, which do not count."""
    info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
    if len(info) < _TCP_INFO_SIZE:
        info = _NOTHING
    rtt_us, min_rtt_us = (unpack_from("=I", info, offset)[0] for offset in (68, 148))
    (acked,) = unpack_from("=Q", info, 120)
    delivery_rate, busy_us, receiver_us = unpack_from("=QQQ", info, 160)
    sent, again = unpack_from("=QQ", info, 200)
    return Counters(acked, sent, again, busy_us / 1e6, receiver_us / 1e6, rtt_us / 1e6, min_rtt_us / 1e6, delivery_rate)
