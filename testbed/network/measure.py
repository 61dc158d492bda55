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
from typing import Any

from testbed.errors import NetworkError
from testbed.link.counts import COUNTS, early_ones
from testbed.network.namespaces import inside
from testbed.network.pace import carried

ECHO_BYTES = 16
ECHO_WIRE = ECHO_BYTES + 8 + 20 + 14  # with UDP, IP and Ethernet headers
PERIOD = 1 << 18
PATTERN = memoryview(random.Random(1).randbytes(PERIOD) * 2)  # so that a slice of a period begins anywhere in it
UDP_HEADERS = 28  # with IP
NUMBER = struct.Struct("=Q")  # of a packet in its train
CATCH_UP = 0.0005  # seconds that a sender may be behind and make up for, where it sleeps between packets
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
class Loop:
    """Callbacks by socket; closes everything at the end."""

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
        """Serve callbacks until the monotonic clock shows `deadline`; spinning, the time to wake up is excluded."""
        while (left := deadline - time.monotonic()) > 0:
            self.serve(0 if spin else left)

    def serve(self, patience: float) -> None:
        for key, _ in self.selector.select(patience):
            key.data()

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Loop]:
        loop = cls()
        try:
            yield loop
        finally:
            loop.selector.close()
            for sock in loop.sockets:
                sock.close()


def round_trips(
    pairs: Sequence[tuple[End, End]], count: int = 10, patience: float = 2.0, *, spin: bool = True
) -> list[list[float]]:
    """Return round-trip times in seconds, `count` echoes one after another per pair, all pairs at once. They are those
    of the network: by the kernel's clock, less the time that a packet lay at the other end before it was sent back.

    An echo that does not come back within `patience` seconds is left out. Spinning takes a whole core.
    """
    with Loop.opened() as loop:
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

    def __init__(self, loop: Loop, source: End, target: End, count: int, patience: float) -> None:
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
    """Return a packet, its sender, and when it came: nanoseconds since the epoch."""
    data, ancillary, _, sender = one.recvmsg(64, 64)
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("@ll", value)
            return data, sender, seconds * 1_000_000_000 + nanoseconds
    return data, sender, time.time_ns()


@dataclass
class Stream:
    """The outcome of a TCP stream."""

    source: End
    target: End
    arrivals: list[tuple[float, int]] = field(default_factory=list)  # (time, bytes so far) at the receiver
    damaged: bool = False

    def goodput(self, begin: float, end: float) -> float:
        """Return the bit/s received between two times, interpolated at both ends."""
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
    """Return the goodput in bit/s of one TCP stream per pair, all at once: the median of `slices` equal parts of the
    window; 0 where no connection was made. The content is checked, too."""
    with Loop.opened() as loop:
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


def _stream(loop: Loop, stream: Stream) -> None:
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
        return  # no listener: nothing arrives
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
    """The outcome of a train."""

    sent: int
    numbers: tuple[int, ...]  # of the packets, as they arrived
    rate: float | None  # bit/s on the wire, as packets arrived; None: the sender was too slow to measure it

    @property
    def received(self) -> int:
        return len({*self.numbers})

    def share(self, count: str) -> float:
        """Return the share of the packets sent that were of this kind of link/counts.py."""
        return COUNTS[count].seen(self.numbers, self.sent) if self.sent else 0.0

    @property
    def loss(self) -> float:
        return self.share("lost")


def udp_train(source: End, target: End, rate: float, packets: int, drain: float = 1.0, mtu: int = 1500) -> Train:
    """Send one train alone."""
    return udp_trains([Order(source, target, rate, packets)], drain, mtu)[0]


def udp_trains(orders: Sequence[Order], drain: float = 1.0, mtu: int = 1500, *, spin: bool = True) -> list[Train]:
    """Send full packets, all trains at once; measure how many of each arrive, and how fast. `drain`: seconds to wait
    for the last ones. Spinning takes a whole core; without it packets are spaced a little less evenly."""
    with Loop.opened() as loop:
        wagons = [_Wagons(loop, order, mtu, 0.0 if spin else CATCH_UP) for order in orders]
        while under_way := [one for one in wagons if not one.gone]:
            for one in under_way:
                one.send_if_due()
            loop.serve(0)  # also where there is no time to wait: what is not fetched would seem lost
            due = min(one.due for one in under_way)
            short = due - time.monotonic() < SELECT_SECONDS
            if short and not spin:
                time.sleep(max(0.0, due - time.monotonic()))
            else:
                loop.run_until(min(due, time.monotonic() + 0.01), spin=short)
        end = time.monotonic() + drain
        while time.monotonic() < end and not all(one.complete for one in wagons):
            loop.run_until(min(end, time.monotonic() + 0.02))
    return [one.train for one in wagons]


class _Wagons:
    """A train under way."""

    def __init__(self, loop: Loop, order: Order, mtu: int, catch_up: float) -> None:
        self._order, self._wire = order, mtu + 14
        self._interval = 8 * self._wire / order.rate
        self._catch_up = max(catch_up, self._interval)
        self._rest = bytes(mtu - UDP_HEADERS - NUMBER.size)
        self._departures: list[float] = []
        self._arrivals: list[tuple[int, float]] = []  # by number
        self._numbers: set[int] = set()  # of those that arrived
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
        return len(self._departures) == self._order.packets

    @property
    def complete(self) -> bool:
        return len(self._numbers) == self._order.packets

    @property
    def train(self) -> Train:
        numbers = tuple(number for number, _ in self._arrivals)
        early = early_ones(numbers)  # did not wait for the link's rate
        came = carried(self._departures, [one for one in self._arrivals if one[0] not in early], 1 / self._interval)
        return Train(self._order.packets, numbers, None if came is None else 8 * self._wire * came)

    def send_if_due(self) -> None:
        if time.monotonic() < self.due:
            return
        with suppress(BlockingIOError):  # a full socket buffer: try again
            now = time.monotonic()
            self._sender.send(NUMBER.pack(len(self._departures)) + self._rest)
            self._departures.append(now)
            # Late packets are not caught up with: a burst would overflow queues and seem to be the link's loss.
            self.due = max(self.due + self._interval, time.monotonic() - self._catch_up)

    def _fetch(self) -> None:
        with suppress(BlockingIOError):
            while True:
                data, _, came_ns = _received(self._receiver)
                number = NUMBER.unpack_from(data)[0]
                if number < self._order.packets:  # else it was damaged, and the checksum did not show it
                    self._arrivals.append((number, came_ns / 1e9))
                    self._numbers.add(number)
