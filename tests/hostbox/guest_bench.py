"""What `testbed bench network --box host` compares with: Mininet's links, on the same kernel. Figures need a quiet
machine; that links are shaped, and that nothing stays, does not."""

from __future__ import annotations

import socket

from testbed.bench import mininet_ring
from testbed.bench.network import _beside, _build_here, _ring

RING = _ring(3, "20mbit", "5ms")


def test_mininets_links_are_measured_as_ours_are_and_go_away() -> None:
    assert mininet_ring.missing() is None
    before = socket.if_nameindex()
    rows = _beside(RING, "20mbit 5ms")
    assert [row.metric for row in rows] == [
        "Mininet, 20mbit 5ms: round trip, worst link",
        "Mininet, 20mbit 5ms: goodput alone, worst link",
        "Mininet, 20mbit 5ms: goodput, all at once, worst link",
    ]
    assert rows[0].value >= 10  # ms
    assert all(0 < row.value < 20 for row in rows[1:])  # Mbit/s
    assert all(row.reference_value and row.met is None for row in rows)  # its figures are no goals of ours
    assert socket.if_nameindex() == before


def test_building_is_timed() -> None:
    """Ours with netem, theirs with TCLinks."""
    assert all(seconds > 0 for seconds in _build_here(RING, None))
    assert all(seconds > 0 for seconds in mininet_ring.build(2, RING.links[0].ab))
