"""The least time that a step's messages need: each round's latency plus the bytes at the links' rate. Pure.

Printed beside what was measured; the difference is what a better implementation could still gain.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from testbed.plan import NetworkPlan
from testbed.results.comparison import BASELINE, Line

EVERYBODY = -1  # as a peer: an all-reduce
# Times its floor that Gloo's all-reduce waits where latency counts: about twice. What is beyond has other reasons, such
# as a machine with too few processors.
HANDSHAKES = (1.5, 2.5)
PACED_RATIO, PACED_SECONDS = 1.25, 0.005  # beyond which it is not the machine that takes so long


def gossip_floor(plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float) -> float:
    """Seconds per step, of the messages that need longest."""
    return max(gossip_times(plan, bytes_per_step, rounds).values(), default=0.0)


def gossip_times(
    plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float
) -> dict[tuple[int, int], float]:
    """Seconds per step by (sender, receiver) rank, as `bytes_per_step` is: `rounds` times the path's latency and its
    busiest link at its rate.

    Two workers that wait for each other may take turns in waiting, so it is the mean of both ways that counts, and
    likewise around a circle; no link carries more than its rate, though.
    """
    shapes = {(link.a, link.b): link.ab for link in plan.links} | {(link.b, link.a): link.ba for link in plan.links}
    ways = {pair: list(pairwise(way)) for pair, way in _ways(plan).items() if pair in bytes_per_step}
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
    """Seconds of a ring all-reduce in rank order, in the better direction: 2(n−1) rounds, and 2(n−1)/n of the bytes
    through each worker. It may send in pieces, so that latency and sending need not add up."""
    n = len(plan.workers)
    if n < 2:
        return 0.0
    each = 2 * (n - 1) / n * bytes_reduced
    up = {(rank, (rank + 1) % n): each for rank in range(n)}
    down = {(there, here): each for here, there in up}
    return min(pipelined_floor(plan, ring, rounds=2 * (n - 1)) for ring in (up, down))


def pipelined_floor(plan: NetworkPlan, bytes_per_step: Mapping[tuple[int, int], float], rounds: float) -> float:
    """Where pieces travel while others wait: the latency of all rounds, or the bytes, whichever takes longer."""
    nothing = dict.fromkeys(bytes_per_step, 0.0)
    return max(gossip_floor(plan, nothing, rounds), gossip_floor(plan, bytes_per_step, rounds=1))


def _ways(plan: NetworkPlan) -> dict[tuple[int, int], tuple[str, ...]]:
    rank = {worker.name: worker.rank for worker in plan.workers}
    there = {(rank[path.source], rank[path.target]): path.hops for path in plan.paths}
    return there | {(rank[path.target], rank[path.source]): path.back for path in plan.paths}


def above_floor(lines: Sequence[Line]) -> str:
    """Why messages take so much longer than their floor, where they do and it is known; empty where they do not."""
    return " ".join(filter(None, [_asked_for_late(lines), _paced(lines)]))


def _paced(lines: Sequence[Line]) -> str:
    """BBR knows no faster rate than a message per round trip, where there are no more to send, and sends the next one
    at 2.9 times that: over a third of a round trip, however short it is."""
    paced = [line for line in lines if line.congestion == "bbr" and line.method != BASELINE]
    times = [(line.exchange_s, line.floor_s, line.method) for line in paced if line.exchange_s and line.floor_s]
    late = [one for one in times if one[0] > PACED_RATIO * one[1] and one[0] - one[1] > PACED_SECONDS]
    if not late:
        return ""
    ratio, method = max((took / least, method) for took, least, method in late)
    return (
        f"{method}'s messages took {ratio:.1f} times their floor: TCP's congestion control is bbr "
        "here, which spreads a short message that comes alone over a third of a round trip. "
        "With network: {congestion: reno} it does not."
    )


def _asked_for_late(lines: Sequence[Line]) -> str:
    stock = [line for line in lines if line.method == BASELINE and line.backend == "gloo" and line.floor_s]
    times = [line.parts_s.get("wait", 0.0) / (line.floor_s or 1.0) for line in stock]
    found = [time for time in times if HANDSHAKES[0] < time <= HANDSHAKES[1]]
    if not found:
        return ""
    return (
        f"all-reduce waits {max(found):.1f} times its floor: Gloo sends each piece only once its receiver has asked "
        "for it, so a round takes a round trip where the floor counts one way. The method ring asks ahead."
    )
