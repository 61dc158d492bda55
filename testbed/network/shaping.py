"""What the kernel is told about a link: queue limits, netem's numbers, how large a packet may be. Pure: no root,
no I/O."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, sqrt

from testbed.network.shape import Shape

ETHERNET_HEADER = 14  # netem counts it
TCP_HEADERS = 52  # IPv4 and TCP with timestamps
MINIMUM_QUEUE = 100  # packets, where the scenario does not say how large the buffer is
MAXIMUM_RATE = 34_300_000_000  # bit/s; above it netem's 32-bit rate overflows on its way through pyroute2
MAXIMUM_LATENCY = 274.0  # seconds; netem's 32-bit tick count
MAXIMUM_SEGMENTS = 44  # what fits into an IP packet of 64 kB
MAXIMUM_JITTER = (2**31 - 1) / 1e9  # seconds; netem's own limit of what it is told
MOST_JITTER = MAXIMUM_JITTER / sqrt(3)  # as a standard deviation, which scenarios ask for
MAXIMUM_LIMIT = 2**32 - 1  # packets
SUPERPACKET_SECONDS = 0.001  # a super-packet may occupy the link for this long
LONGEST_SUPERPACKET_SECONDS = 0.005  # and for this long where the box could not keep up otherwise


@dataclass(frozen=True)
class Netem:
    """The arguments of one netem qdisc, in the kernel's units."""

    delay_us: int
    jitter_us: int
    loss_percent: float
    rate: int  # bytes/s; 0: not limited
    limit: int  # packets


def wire_bytes(mtu: int) -> int:
    """What a full packet weighs on the link."""
    return mtu + ETHERNET_HEADER


def ideal_goodput(rate: float, mtu: int = 1500) -> float:
    """The most a TCP stream can carry over a link of this rate, in bit/s."""
    return rate * (mtu - TCP_HEADERS) / wire_bytes(mtu)


def buffer_seconds(shape: Shape, reverse: Shape) -> float:
    """How long the queue of this direction is: as asked, else one round trip of the link."""
    return shape.buffer if shape.buffer is not None else shape.latency + reverse.latency


def limit_packets(shape: Shape, reverse: Shape, mtu: int = 1500) -> int:
    """netem's limit: it holds the packets in flight and the queue together."""
    if shape.limit is not None:
        return shape.limit
    if shape.rate is None:
        return 100_000  # nothing queues at an unlimited rate, and what is in flight is bound by the sender's window
    per_second = shape.rate / (8 * wire_bytes(mtu))
    queue = ceil(per_second * buffer_seconds(shape, reverse))
    if shape.buffer is None:
        queue = max(queue, MINIMUM_QUEUE)
    packets = ceil(per_second * shape.latency) + max(queue, 2) + ceil(per_second * 3 * shape.jitter)
    return min(packets, MAXIMUM_LIMIT)


def netem(shape: Shape, reverse: Shape, mtu: int = 1500, overhead: float = 0.0) -> Netem:
    """Every attribute, always: `change` keeps what is left out. `overhead` is what the box adds to a link by itself.

    netem draws delays evenly from latency ± what it is told; their standard deviation is that over √3.
    """
    return Netem(
        delay_us=round(max(0.0, shape.latency - overhead) * 1e6),
        jitter_us=int(min(shape.jitter * sqrt(3), MAXIMUM_JITTER) * 1e6),
        loss_percent=100.0 if not shape.up else round(shape.loss * 100, 6),
        rate=0 if shape.rate is None else max(1, round(shape.rate / 8)),
        limit=limit_packets(shape, reverse, mtu),
    )


def gso_segments(shapes: list[Shape], mtu: int = 1500, wanted: int = 1) -> int:
    """How many MTU-sized segments a worker may hand to the network as one super-packet.

    `shapes` are the links next to the worker. netem treats a super-packet as one packet: one loss, one slot in the
    queue, one serialisation. So it may last a millisecond at most, and is a single packet where loss or the length of
    the queue matters and the rate is low enough to afford it. `wanted`: what the box would need to keep up with all
    links at once (keeping_up), which counts for more than the millisecond, up to a point.
    """
    rates = [shape.rate for shape in shapes if shape.rate is not None]
    if not rates:
        return MAXIMUM_SEGMENTS
    slowest = min(rates)
    exact = any(shape.loss or shape.buffer is not None or shape.limit is not None for shape in shapes)
    if exact and slowest <= 100_000_000:
        return 1
    short, longest = (
        int(slowest * seconds / (8 * wire_bytes(mtu))) for seconds in (SUPERPACKET_SECONDS, LONGEST_SUPERPACKET_SECONDS)
    )
    return max(1, min(MAXIMUM_SEGMENTS, max(short, min(wanted, longest))))


def keeping_up(rates: Iterable[float], packets_per_second: float, mtu: int = 1500) -> int:
    """Segments per super-packet with which a box that handles so many packets carries all of these rates at once."""
    return max(1, ceil(sum(rates) / (8 * wire_bytes(mtu) * packets_per_second)))


def superpacket_bytes(segments: int, mtu: int = 1500) -> int:
    """The longest IP packet of that many segments, headers included."""
    return max(mtu, min(65_000, segments * (mtu - TCP_HEADERS) + TCP_HEADERS))
