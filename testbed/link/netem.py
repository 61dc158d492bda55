"""netem's arguments for a link: queue limits, netem's numbers, how large a packet may be. Pure: no root, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, sqrt

from testbed.link.shape import PROPERTIES, SHARES, Shape, disturbs

ETHERNET_HEADER = 14  # netem counts it
TCP_HEADERS = 52  # IPv4 and TCP with timestamps
MINIMUM_QUEUE = 100  # packets, where the scenario does not say how large the buffer is
MAXIMUM_RATE = 34_300_000_000  # bit/s; above it netem's 32-bit rate overflows on its way through pyroute2
MAXIMUM_LATENCY = 274.0  # seconds; netem's 32-bit tick count
MAXIMUM_SEGMENTS = 44  # what fits into an IP packet of 64 kB
MAXIMUM_JITTER = (2**31 - 1) / 1e9  # seconds; netem's own limit
MOST_JITTER = MAXIMUM_JITTER / sqrt(3)  # as a standard deviation, which scenarios ask for
MAXIMUM_LIMIT = 2**32 - 1  # packets
SUPERPACKET_SECONDS = 0.001  # a super-packet may occupy the link for this long
LONGEST_SUPERPACKET_SECONDS = 0.005  # and for this long where the box could not keep up otherwise


@dataclass(frozen=True)
class Netem:
    """The arguments of one netem qdisc, in the kernel's units."""

    delay_us: int
    jitter_us: int
    rate: int  # bytes/s; 0: not limited
    limit: int  # packets
    percents: Mapping[str, float] = field(default_factory=dict)  # of packets, by netem's argument
    distribution: str = "uniform"  # of delays


def wire_bytes(mtu: int) -> int:
    """Return the bytes of a full packet on the link."""
    return mtu + ETHERNET_HEADER


def ideal_goodput(rate: float, mtu: int = 1500) -> float:
    """Return the most a TCP stream can carry over a link of this rate, in bit/s."""
    return rate * (mtu - TCP_HEADERS) / wire_bytes(mtu)


def buffer_seconds(shape: Shape, reverse: Shape) -> float:
    """Return how long the queue of this direction is: as asked, else one round trip of the link."""
    return shape.buffer if shape.buffer is not None else shape.latency + reverse.latency


def limit_packets(shape: Shape, reverse: Shape, mtu: int = 1500) -> int:
    """Return netem's limit: it covers the packets in flight and the queue together."""
    if shape.limit is not None:
        return shape.limit
    if shape.rate is None:
        return 100_000  # nothing queues at an unlimited rate, and what is in flight is bound by the sender's window
    per_second = shape.rate / (8 * wire_bytes(mtu))
    queue = ceil(per_second * buffer_seconds(shape, reverse))
    if shape.buffer is None:
        queue = max(queue, MINIMUM_QUEUE)
    longest = (3 if shape.jitter_shape == "uniform" else 4) * shape.jitter  # what a delay may be above the latency
    packets = ceil(per_second * shape.latency) + max(queue, 2) + ceil(per_second * longest)
    return min(packets, MAXIMUM_LIMIT)


def netem(shape: Shape, reverse: Shape, mtu: int = 1500, overhead: float = 0.0, slow_motion: float = 1.0) -> Netem:
    """Return every attribute, always: `change` keeps what is left out. `overhead` is what the box itself adds to a
    link, in real time like all that the kernel gets; shapes are in scenario time. The limit counts packets, of which
    slow motion leaves as many.

    By itself netem draws delays uniformly from latency ± its jitter; their standard deviation is that over √3. The
    tables of distributions.py are made to the standard deviation.
    """
    real = shape.stretched(slow_motion)
    told = real.jitter * sqrt(3) if shape.jitter_shape == "uniform" else real.jitter
    return Netem(
        delay_us=round(max(0.0, real.latency - overhead) * 1e6),
        jitter_us=int(min(told, MAXIMUM_JITTER) * 1e6),
        rate=0 if real.rate is None else max(1, round(real.rate / 8)),
        limit=limit_packets(shape, reverse, mtu),
        percents=_percents(shape),
        distribution=shape.jitter_shape,
    )


def _percents(shape: Shape) -> dict[str, float]:
    """Return all shares. If the link is down, only packet loss: netem passes a packet that is doubled and lost."""
    told = {PROPERTIES[name].netem: round(getattr(shape, name) * 100, 6) for name in SHARES}
    return told if shape.up else {**dict.fromkeys(told, 0.0), PROPERTIES["loss"].netem: 100.0}


def gso_segments(shapes: list[Shape], mtu: int = 1500, wanted: int = 1) -> int:
    """Return how many MTU-sized segments a worker may hand to the network as one super-packet.

    `shapes` are the links next to the worker. netem treats a super-packet as one packet: one loss, one slot in the
    queue, one serialisation. So it may last a millisecond at most, and is a single packet where something happens to
    some packets only, or the length of the queue matters, and the rate is low enough to afford it. `wanted`: what the
    box would need to keep up with all links at once (keeping_up), which outweighs the millisecond, up to a point.
    """
    rates = [shape.rate for shape in shapes if shape.rate is not None]
    if not rates:
        return MAXIMUM_SEGMENTS
    slowest = min(rates)
    exact = any(disturbs(shape) or shape.buffer is not None or shape.limit is not None for shape in shapes)
    if exact and slowest <= 100_000_000:
        return 1
    short, longest = (
        int(slowest * seconds / (8 * wire_bytes(mtu))) for seconds in (SUPERPACKET_SECONDS, LONGEST_SUPERPACKET_SECONDS)
    )
    return max(1, min(MAXIMUM_SEGMENTS, max(short, min(wanted, longest))))


def keeping_up(rates: Iterable[float], packets_per_second: float, mtu: int = 1500) -> int:
    """Return the segments per super-packet with which a box of so many packets carries all these rates at once."""
    return max(1, ceil(sum(rates) / (8 * wire_bytes(mtu) * packets_per_second)))


def superpacket_bytes(segments: int, mtu: int = 1500) -> int:
    """Return the longest IP packet of that many segments, headers included."""
    return max(mtu, min(65_000, segments * (mtu - TCP_HEADERS) + TCP_HEADERS))
