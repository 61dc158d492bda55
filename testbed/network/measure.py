"""Measurements through the emulated network with nothing but sockets: round-trip time, TCP goodput, UDP rate and loss.

A socket stays in the namespace where it was made, so one process holds both ends of every measurement and drives all of
them from one loop. Callers (calibration, bench) pass the two ends' namespaces and addresses.
"""

from __future__ import annotations

import errno
import random
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from testbed.errors import NetworkError
from testbed.network.namespaces import inside

ECHO_BYTES = 16
ECHO_WIRE = ECHO_BYTES + 8 + 20 + 14  # with UDP, IP and Ethernet headers
PERIOD = 1 << 18
PATTERN = memoryview(random.Random(1).randbytes(PERIOD) * 2)  # so that a slice of a period begins anywhere in it
UDP_HEADERS = 28  # with IP
SLICE = 30  # packets, whose rate can be told
SELECT_SECONDS = 0.002  # below which waiting for sockets takes longer than asked: it counts in milliseconds
SO_RCVBUFFORCE = 33  # beyond what ordinary users may have
SO_TIMESTAMPNS = 35  # when the kernel got a packet, whenever we wake up to read it
APART = 0.003  # seconds between pairs' first echoes, which else would queue behind each other


@dataclass(frozen=True)
class End:
    """One side of a measurement."""

    name: str
    namespace: int  # descriptor
    address: str


@dataclass
class _Loop:
    """Callbacks by socket, and everything closed at the end."""

    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    sockets: list[socket.socket] = field(default_factory=list)

    def make(self, end: End, kind: int) -> socket.socket:
        with inside(end.namespace):
            made = socket.socket(socket.AF_INET, kind | socket.SOCK_NONBLOCK)
        self.sockets.append(made)
        return made

    def on(self, sock: socket.socket, events: int, callback: Callable[[], None]) -> None:
        self.selector.register(sock, events, callback)

    def run_until(self, deadline: float, *, spin: bool = False) -> None:
        """Serve callbacks until the monotonic clock shows `deadline`; spinning, waking up is not part of the answer."""
        while (left := deadline - time.monotonic()) > 0:
            self.serve(0 if spin else left)

    def serve(self, patience: float) -> None:
        for key, _ in self.selector.select(patience):
            key.data()

    def close(self) -> None:
        self.selector.close()
        for sock in self.sockets:
            sock.close()


@contextmanager
def _loop() -> Iterator[_Loop]:
    loop = _Loop()
    try:
        yield loop
    finally:
        loop.close()


def round_trips(
    pairs: Sequence[tuple[End, End]], count: int = 10, patience: float = 2.0, *, spin: bool = True
) -> list[list[float]]:
    """Round-trip times in seconds, `count` echoes one after another per pair, all pairs side by side. They are those of
    the network: by the kernel's clock, less the time that a packet lay at the other end before it was sent back.

    An echo that does not come back within `patience` seconds is left out of the answer. Spinning takes a whole core.
    """
    with _loop() as loop:
        echoes = [_Echo(loop, source, target, count, patience) for source, target in pairs]
        for echo in echoes:
            echo.next()
            loop.run_until(time.monotonic() + APART, spin=spin)
        deadline = time.monotonic() + count * patience
        while time.monotonic() < deadline and not all(echo.done for echo in echoes):
            loop.run_until(min(deadline, time.monotonic() + 0.05), spin=spin)
            for echo in echoes:
                echo.check_lost()
        return [echo.times for echo in echoes]


class _Echo:
    """One pair's echoes."""

    def __init__(self, loop: _Loop, source: End, target: End, count: int, patience: float) -> None:
        self.times: list[float] = []
        self._sent = 0
        self._lay_ns = 0  # at the other end
        self._count, self._patience = count, patience
        self._server = loop.make(target, socket.SOCK_DGRAM)
        self._server.bind((target.address, 0))
        self._client = loop.make(source, socket.SOCK_DGRAM)
        self._client.connect(self._server.getsockname())
        for one in (self._server, self._client):
            one.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        loop.on(self._server, selectors.EVENT_READ, self._reflect)
        loop.on(self._client, selectors.EVENT_READ, self._returned)

    @property
    def done(self) -> bool:
        return self._sent > self._count

    def next(self) -> None:
        self._sent += 1
        if not self.done:
            data = struct.pack("=Q", self._sent).ljust(ECHO_BYTES, b".")
            self._at, self._at_ns = time.perf_counter(), time.time_ns()
            with suppress(OSError):
                self._client.send(data)

    def check_lost(self) -> None:
        if not self.done and time.perf_counter() - self._at > self._patience:
            self.next()

    def _reflect(self) -> None:
        data, sender, came_ns = _received(self._server)
        self._lay_ns = time.time_ns() - came_ns
        with suppress(OSError):
            self._server.sendto(data, sender)

    def _returned(self) -> None:
        try:
            data, _, came_ns = _received(self._client)
        except OSError:  # unreachable for now
            return
        if struct.unpack_from("=Q", data)[0] == self._sent:
            self.times.append((came_ns - self._at_ns - self._lay_ns) / 1e9)
            self.next()


def _received(one: socket.socket) -> tuple[bytes, Any, int]:
    """A packet, its sender, and when it came: nanoseconds since the epoch."""
    data, ancillary, _, sender = one.recvmsg(64, 64)
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("@ll", value)
            return data, sender, seconds * 1_000_000_000 + nanoseconds
    return data, sender, time.time_ns()


@dataclass
class Stream:
    """A TCP stream's outcome."""

    source: End
    target: End
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (time, bytes so far) at the receiver
    damaged: bool = False

    def goodput(self, begin: float, end: float) -> float:
        """Bit/s received between two times, interpolated at both ends."""
        return 8 * (self._bytes_at(end) - self._bytes_at(begin)) / (end - begin)

    def _bytes_at(self, moment: float) -> float:
        before = (self.arrivals[0][0], 0) if self.arrivals else (moment, 0)
        for arrival in self.arrivals:
            if arrival[0] >= moment:
                span = arrival[0] - before[0]
                share = (moment - before[0]) / span if span > 0 else 1.0
                return before[1] + share * (arrival[1] - before[1])
            before = arrival
        return float(before[1])


def tcp_goodput(pairs: Sequence[tuple[End, End]], warm_up: float, window: float, slices: int = 4) -> list[float]:
    """Goodput in bit/s of one TCP stream per pair, all at once: the median of `slices` equal parts of the window; 0
    where no connection was made. The content is checked, too."""
    with _loop() as loop:
        streams = [Stream(source, target) for source, target in pairs]
        for stream in streams:
            _stream(loop, stream)
        begin = time.monotonic() + warm_up
        loop.run_until(begin + window)
        for stream in streams:
            if stream.damaged:
                raise NetworkError(f"what {stream.source.name} sent arrived damaged at {stream.target.name}")
        step = window / slices
        return [
            statistics.median(s.goodput(begin + i * step, begin + (i + 1) * step) for i in range(slices))
            for s in streams
        ]


def _stream(loop: _Loop, stream: Stream) -> None:
    listener = loop.make(stream.target, socket.SOCK_STREAM)
    listener.bind((stream.target.address, 0))
    listener.listen(1)
    sender = loop.make(stream.source, socket.SOCK_STREAM)
    # Closed means ended: megabytes that wait in the sender would go on filling the link during the next measurement.
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    space = memoryview(bytearray(PERIOD))
    total = sent = 0

    def accept() -> None:
        receiver, _ = listener.accept()
        receiver.setblocking(False)
        loop.sockets.append(receiver)
        loop.on(receiver, selectors.EVENT_READ, lambda: receive(receiver))

    def receive(receiver: socket.socket) -> None:
        nonlocal total
        with suppress(BlockingIOError, ConnectionResetError):
            count = receiver.recv_into(space)
            begin = total % PERIOD
            if bytes(space[:count]) != bytes(PATTERN[begin : begin + count]):
                stream.damaged = True
            total += count
            stream.arrivals.append((time.monotonic(), total))

    def send() -> None:
        nonlocal sent
        try:
            begin = sent % PERIOD
            sent += sender.send(PATTERN[begin : begin + PERIOD])
        except BlockingIOError:
            return
        except OSError:
            loop.selector.unregister(sender)

    code = sender.connect_ex(listener.getsockname())
    if code not in (0, errno.EINPROGRESS):
        return  # nobody there: nothing arrives
    loop.on(listener, selectors.EVENT_READ, accept)
    loop.on(sender, selectors.EVENT_WRITE, send)


@dataclass(frozen=True)
class Order:
    """A paced train of full-sized UDP packets to be sent."""

    source: End
    target: End
    rate: float  # bit/s, counted with all headers
    packets: int


@dataclass(frozen=True)
class Train:
    """What came out of one."""

    sent: int
    received: int
    rate: float  # bit/s on the wire, as packets arrived: the median of equal parts, as the sender may have been held up

    @property
    def loss(self) -> float:
        return 1 - self.received / self.sent if self.sent else 0.0


def udp_train(source: End, target: End, rate: float, packets: int, drain: float = 1.0, mtu: int = 1500) -> Train:
    """One train alone."""
    return udp_trains([Order(source, target, rate, packets)], drain, mtu)[0]


def udp_trains(orders: Sequence[Order], drain: float = 1.0, mtu: int = 1500) -> list[Train]:
    """Send full packets, all trains at once; see how many of each arrive, and how fast. `drain`: seconds to wait for
    the last ones."""
    with _loop() as loop:
        wagons = [_Wagons(loop, order, mtu) for order in orders]
        while under_way := [one for one in wagons if not one.gone]:
            for one in under_way:
                one.send_if_due()
            loop.serve(0)  # also where there is no time to wait: what is not fetched would seem lost
            due = min(one.due for one in under_way)
            loop.run_until(min(due, time.monotonic() + 0.01), spin=due - time.monotonic() < SELECT_SECONDS)
        end = time.monotonic() + drain
        while time.monotonic() < end and not all(one.complete for one in wagons):
            loop.run_until(min(end, time.monotonic() + 0.02))
    return [one.train for one in wagons]


class _Wagons:
    """A train under way."""

    def __init__(self, loop: _Loop, order: Order, mtu: int) -> None:
        self._left = order.packets
        self._order, self._wire = order, mtu + 14
        self._interval = 8 * self._wire / order.rate
        self._payload = bytes(mtu - UDP_HEADERS)
        self._arrivals: list[float] = []
        self.due = time.monotonic()
        self._receiver = loop.make(order.target, socket.SOCK_DGRAM)
        try:
            self._receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        except PermissionError:
            self._receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self._receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._receiver.bind((order.target.address, 0))
        self._sender = loop.make(order.source, socket.SOCK_DGRAM)
        self._sender.connect(self._receiver.getsockname())
        loop.on(self._receiver, selectors.EVENT_READ, self._fetch)

    @property
    def gone(self) -> bool:
        return not self._left

    @property
    def complete(self) -> bool:
        return len(self._arrivals) == self._order.packets

    @property
    def train(self) -> Train:
        return Train(self._order.packets, len(self._arrivals), 8 * self._wire * pace(self._arrivals))

    def send_if_due(self) -> None:
        if time.monotonic() < self.due:
            return
        with suppress(BlockingIOError):  # a full socket buffer: try again
            self._sender.send(self._payload)
            self._left -= 1
            # Late packets are not caught up with: a burst would overflow queues and seem to be the link's loss.
            self.due = max(self.due + self._interval, time.monotonic() - self._interval)

    def _fetch(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._arrivals.append(_received(self._receiver)[2] / 1e9)


def pace(arrivals: Sequence[float]) -> float:
    """Packets per second: the median of up to five parts of at least SLICE packets each. Pure."""
    last = len(arrivals) - 1
    parts = min(5, max(1, last // SLICE))
    marks = [last * part // parts for part in range(parts + 1)]
    spans = [(end - begin, arrivals[end] - arrivals[begin]) for begin, end in pairwise(marks)] if last > 0 else []
    return statistics.median([count / seconds if seconds else 0.0 for count, seconds in spans] or [0.0])
