"""How many segments each worker may send as one packet, by the current links. Pure; the network daemon calls it."""

from __future__ import annotations

from collections.abc import Collection

from testbed.link import netem
from testbed.link.shape import Shape
from testbed.plan.model import LinkPlan, NetworkPlan

CALM = {"host": 200_000.0, "uml": 8_000.0}  # packets per second that cross a link, with which a box is not yet busy


def fitting(plan: NetworkPlan, links: Collection[LinkPlan], packets_per_second: float) -> dict[str, int]:
    """Return the segments by worker. `packets_per_second`: what the box can handle, in real time. How long one may
    occupy a link is in scenario time."""
    near: dict[str, list[Shape]] = {}  # by router
    for link in links:
        for router in (link.a, link.b):
            near.setdefault(router, []).extend((link.ab, link.ba))
    rates = [shape.rate or 0 for link in links for shape in (link.ab, link.ba)]
    wanted = netem.keeping_up(rates, packets_per_second * plan.slow_motion, plan.mtu)
    return {w.name: netem.gso_segments(near.get(w.router, []), plan.mtu, wanted) for w in plan.workers}
