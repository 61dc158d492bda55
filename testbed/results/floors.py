"""The least time that a step's messages need: each round's latency plus the bytes at the links' rate. Pure.

Printed beside what was measured; the difference is what a better implementation could still gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

from testbed.plan import NetworkPlan

EVERYBODY = -1  # as a peer: an all-reduce


def gossip_floor(plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float) -> float:
    """Seconds: `rounds` times the longest one-way latency in use, and the busiest link direction at its rate.

    `bytes_per_step` is by (sender, receiver) rank.
    """
    shapes = {(link.a, link.b): link.ab for link in plan.links} | {(link.b, link.a): link.ba for link in plan.links}
    ways = _ways(plan)
    load: dict[tuple[str, str], float] = defaultdict(float)
    latency = 0.0
    for pair, count in bytes_per_step.items():
        hops = list(pairwise(ways[pair]))
        latency = max(latency, sum(shapes[hop].latency for hop in hops))
        for hop in hops:
            load[hop] += count
    sending = max((8 * count / rate for hop, count in load.items() if (rate := shapes[hop].rate)), default=0.0)
    return rounds * latency + sending


def ring_floor(plan: NetworkPlan, bytes_reduced: float) -> float:
    """Seconds of a ring all-reduce in rank order: 2(n−1) rounds, and 2(n−1)/n of the bytes through each worker."""
    n = len(plan.workers)
    around = {(rank, (rank + 1) % n): 2 * (n - 1) / n * bytes_reduced for rank in range(n)} if n > 1 else {}
    return gossip_floor(plan, around, rounds=2 * (n - 1))


def _ways(plan: NetworkPlan) -> dict[tuple[int, int], tuple[str, ...]]:
    rank = {worker.name: worker.rank for worker in plan.workers}
    there = {(rank[path.source], rank[path.target]): path.hops for path in plan.paths}
    return there | {(rank[path.target], rank[path.source]): path.back for path in plan.paths}
