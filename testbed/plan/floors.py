"""The least time that a step's messages need: each round's latency plus the bytes at the links' rate. Pure.

Printed beside the measured time; the difference is what a better implementation could still gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean

from testbed.plan.model import NetworkPlan

EVERYBODY = -1  # as a peer: an all-reduce


def gossip_floor(plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float) -> float:
    """Return the seconds per step of the slowest messages."""
    return max(gossip_times(plan, bytes_per_step, rounds).values(), default=0.0)


def gossip_times(
    plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float
) -> dict[tuple[int, int], float]:
    """Return seconds per step by (sender, receiver) rank, as `bytes_per_step` is: `rounds` times the path's latency and
    its busiest link at its rate.

    Two workers that wait for each other may take turns in waiting, so the mean of both ways counts, and likewise around
    a circle; no link carries more than its rate, though.
    """
    shapes = plan.directions
    ways = {pair: list(pairwise(plan.forwarding.way(*pair))) for pair in bytes_per_step}
    load: dict[tuple[str, str], float] = defaultdict(float)
    for pair, count in bytes_per_step.items():
        for hop in ways[pair]:
            load[hop] += count
    sending = {hop: 8 * count / rate if (rate := shapes[hop].rate) else 0.0 for hop, count in load.items()}
    times = {
        pair: rounds * sum(shapes[hop].latency for hop in hops) + max(sending[hop] for hop in hops)
        for pair, hops in ways.items()
        if hops
    }
    around = fmean(times.values()) if times else 0.0
    turns = {pair: (time + times[pair[::-1]]) / 2 if pair[::-1] in times else around for pair, time in times.items()}
    return {pair: max([turns.get(pair, 0.0), *(sending[hop] for hop in hops)]) for pair, hops in ways.items()}


def ring_floor(plan: NetworkPlan, bytes_reduced: float) -> float:
    """Return the seconds of a ring all-reduce in rank order, in the better direction: 2(n−1) rounds, and 2(n−1)/n of
    the bytes through each worker. It may send in pieces, so latency and sending need not add up."""
    n = len(plan.workers)
    if n < 2:
        return 0.0
    each = 2 * (n - 1) / n * bytes_reduced
    up = {(rank, (rank + 1) % n): each for rank in range(n)}
    down = {(there, here): each for here, there in up}
    return min(pipelined_floor(plan, ring, rounds=2 * (n - 1)) for ring in (up, down))


def pipelined_floor(plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float) -> float:
    """Return the floor where pieces travel while others wait: all rounds' latency or the bytes, if longer."""
    nothing = dict.fromkeys(bytes_per_step, 0.0)
    return max(gossip_floor(plan, nothing, rounds), gossip_floor(plan, bytes_per_step, rounds=1))
