"""How many segments each worker may send as one packet, by the links as they are. Pure; the keeper asks it."""

from __future__ import annotations

from collections.abc import Collection

from testbed.network import shaping
from testbed.network.shape import Shape
from testbed.plan import LinkPlan, NetworkPlan


def fitting(plan: NetworkPlan, links: Collection[LinkPlan], packets_per_second: float) -> dict[str, int]:
    """By worker. `packets_per_second`: what the box can handle."""
    near: dict[str, list[Shape]] = {}  # by router
    for link in links:
        for router in (link.a, link.b):
            near.setdefault(router, []).extend((link.ab, link.ba))
    rates = [shape.rate or 0 for link in links for shape in (link.ab, link.ba)]
    wanted = shaping.keeping_up(rates, packets_per_second, plan.mtu)
    return {w.name: shaping.gso_segments(near.get(w.router, []), plan.mtu, wanted) for w in plan.workers}
