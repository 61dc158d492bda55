"""What a link does to packets in one direction, in SI units: `Shape`; its fields are the table of a link's properties.

All code that handles properties one by one (scenarios, `net set`, plans, netem's arguments, calibration, tables for
people) goes through PROPERTIES. How to add one: docs/extending.md. Cheap to import: the network's builder needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Unit = Literal["duration", "rate", "share", "distribution", "switch", "packets"]
DISTRIBUTIONS = ("uniform", "normal", "pareto", "paretonormal")  # of delays; link/distributions.py draws them


@dataclass(frozen=True)
class Property:
    """One row: what other code needs to know of a property."""

    unit: Unit
    label: str  # what was done to a packet, or a heading, for people
    measured: str  # how the calibration sees it: "round trip", "goodput", a count of link/counts.py; "": it does not
    example: str = ""  # as people write it; "": they cannot, it comes with another property
    netem: str = ""  # the argument of pyroute2's netem that carries a share, in percent; "": link/netem.py computes it
    sparse: bool = False  # in JSON only where it is not the default: plans and results stay as they were before it came
    default: Any = None
    name: str = ""

    @property
    def optional(self) -> bool:
        """Whether None is a valid value."""
        return self.default is None

    def usual(self, value: Any) -> bool:
        """Whether the value is the default of links."""
        return bool(value == self.default)


def _row(default: Any, row: Property) -> Any:
    return field(default=default, metadata={"row": row})


@dataclass(frozen=True)
class Shape:
    """One direction of a link."""

    # Seconds, one way
    latency: float = _row(0.0, Property("duration", "latency", "round trip", "20ms"))
    # Bit/s; None: as fast as the machine goes
    rate: int | None = _row(None, Property("rate", "rate", "goodput", "5mbit"))
    # Seconds, standard deviation
    jitter: float = _row(0.0, Property("duration", "jitter", "round trip", "1ms"))
    # Shares of packets, 0…1
    loss: float = _row(0.0, Property("share", "lost", "lost", "0.1%", "loss"))
    # Seconds of queue at `rate`; None: one round trip of the link
    buffer: float | None = _row(None, Property("duration", "buffer", "", "50ms"))
    # False: everything is dropped
    up: bool = _row(True, Property("switch", "up", "lost"))
    # Packets; overrides the computed queue
    limit: int | None = _row(None, Property("packets", "limit", ""))
    # Which delays jitter makes how likely, one of DISTRIBUTIONS
    jitter_shape: str = _row("uniform", Property("distribution", "jitter shape", "", sparse=True))
    # Sent at once, before those that are under way
    reorder: float = _row(0.0, Property("share", "reordered", "early", "1%", "prob_reorder", sparse=True))
    # Sent twice
    duplicate: float = _row(0.0, Property("share", "duplicated", "repeated", "0.1%", "duplicate", sparse=True))
    # A bit is flipped somewhere, so that a checksum is wrong and the receiver drops the packet
    corrupt: float = _row(0.0, Property("share", "corrupted", "lost", "0.1%", "prob_corrupt", sparse=True))

    def stretched(self, factor: float) -> Shape:
        """Return the same link in slow motion, in real time: as many bytes under way and in the queue, for `factor`
        times as long."""
        return replace(
            self,
            latency=self.latency * factor,
            rate=None if self.rate is None else max(1, round(self.rate / factor)),
            jitter=self.jitter * factor,
            buffer=None if self.buffer is None else self.buffer * factor,
        )


def _table() -> dict[str, Property]:
    rows = {}
    for one in fields(Shape):
        row: Property = one.metadata["row"]
        rows[one.name] = Property(**{**vars(row), "default": one.default, "name": one.name})
    return rows


PROPERTIES: Mapping[str, Property] = _table()
WRITTEN = tuple(name for name, row in PROPERTIES.items() if row.example)  # by people: in scenarios, with `net set`
SHARES = tuple(name for name, row in PROPERTIES.items() if row.unit == "share")  # drawn for each packet


def as_data(shape: Shape) -> dict[str, Any]:
    """Return data for JSON; what was added after the first versions only where it differs from its default."""
    return {name: value for name, value in vars(shape).items() if not (_sparse(name) and _usual(name, value))}


def unusual(shape: Shape, *, besides: Iterable[str] = ()) -> dict[str, Any]:
    """Return what differs from a link that does nothing, and `besides`."""
    kept = set(besides)
    return {name: value for name, value in vars(shape).items() if name in kept or not _usual(name, value)}


def disturbs(shape: Shape) -> bool:
    """Whether it does something to some packets and not to others."""
    return any(getattr(shape, name) for name in SHARES)


def _sparse(name: str) -> bool:
    return PROPERTIES[name].sparse


def _usual(name: str, value: Any) -> bool:
    return PROPERTIES[name].usual(value)
