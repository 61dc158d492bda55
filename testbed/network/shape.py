"""What a link does to packets in one direction, in SI units. Scenarios describe it, plans carry it, shaping
applies it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """One direction of a link."""

    latency: float = 0.0  # seconds, one way
    rate: int | None = None  # bit/s; None: as fast as the machine goes
    jitter: float = 0.0  # seconds, standard deviation
    loss: float = 0.0  # share of packets, 0…1
    buffer: float | None = None  # seconds of queue at `rate`; None: one round trip of the link
    up: bool = True  # False: everything is dropped
    limit: int | None = None  # packets; overrides the computed queue
