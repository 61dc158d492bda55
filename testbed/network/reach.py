"""Checks that all workers reach each other: at least one packet there and back between every two of them, before
anything is measured. Links between neighbours may all be right, and paths over several of them still lead nowhere.

Calibration calls it; one socket per worker answers the others and receives their answers.
"""

from __future__ import annotations

import math
import random
import selectors
import socket
import struct
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from testbed.link.counts import lost
from testbed.link.shape import Shape
from testbed.network.measure import ECHO_BYTES, ECHO_WIRE, SELECT_SECONDS, End, Loop
from testbed.plan.model import NetworkPlan, WorkerPath
from testbed.plan.pairs import UNLIMITED
from testbed.verdict import Verdict

ALL_PAIRS = 64  # workers, up to which every pair is asked; of more, pairs that use every entry of every route table
HOPS_PER_SECOND = 40_000  # packets times links, which even a guest carries
LONGEST_SECONDS = 5.0  # for sending; where all pairs take longer, some are asked
LINK_SHARE = 0.5  # of a link's rate, so that nothing queues
FIRST_WAIT, LONGEST_WAIT = (
    0.1,
    0.8,
)  # seconds beyond the way's own time before it is asked again, twice as long each time
NEVER = 1e-6  # chance that a pair stays silent by lost packets alone
LEAST_LOSS, LIKELY_SILENT = 0.02, 0.5  # for how often a pair is asked; where so many are lost, silence means nothing
MOST_NAMED = 3  # pairs in a message
PACKET = struct.Struct("=IB")  # the pair's number; whether this is the answer


@dataclass(frozen=True)
class Question:
    """Two workers and the path between them, there and back."""

    source: str
    target: str
    hops: int
    seconds: float  # round trip, with what jitter may add
    sending: float  # on the slowest link of the way
    loss: float  # chance that no answer comes

    @property
    def name(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def may_be_silent(self) -> bool:
        return self.loss > LIKELY_SILENT

    @property
    def cost(self) -> float:
        """Return the seconds to the next one, so that concurrent questions do not queue; as in `_costs`."""
        return max(self.hops / HOPS_PER_SECOND, self.sending / LINK_SHARE)

    @property
    def tries(self) -> int:
        return math.ceil(math.log(NEVER) / math.log(max(LEAST_LOSS, self.loss)))


def questions(plan: NetworkPlan, partition: Mapping[str, Collection[str]] | None = None) -> list[Question]:
    """Return all pairs of workers that should reach each other; of many workers, pairs that together take every route
    of every router; where that would take too long, a sample in which every worker asks and is asked. Pure."""
    blocked = {frozenset((one, other)) for one, others in (partition or {}).items() for other in others}
    names = [worker.name for worker in plan.workers]
    cost = _costs(plan)
    wanted = combinations(range(len(names)), 2) if len(names) <= ALL_PAIRS else covering(plan)
    seconds, chosen = 0.0, list[tuple[int, int]]()
    for pair in wanted:
        chosen.append(pair)
        seconds += cost[pair]
        if seconds > LONGEST_SECONDS:
            rank = {name: number for number, name in enumerate(names)}
            usual = float(cost[np.triu_indices(len(names), 1)].mean())
            chosen = [(rank[a], rank[b]) for a, b in sample(names, int(LONGEST_SECONDS / usual))]
            break
    asked = [_question(plan.forwarding.path(*pair), plan.directions) for pair in chosen]
    return [one for one in asked if not one.may_be_silent and frozenset((one.source, one.target)) not in blocked]


def _costs(plan: NetworkPlan) -> NDArray[np.float64]:
    """Return [rank, rank]: seconds from asking this pair to the next question."""
    hops, rate = plan.pairs.hops, np.minimum(plan.pairs.rate, plan.pairs.rate.T)
    sending = np.where(rate == UNLIMITED, 0.0, 8 * ECHO_WIRE / rate)
    return np.maximum((hops + hops.T) / HOPS_PER_SECOND, sending / LINK_SHARE)


def _question(path: WorkerPath, shapes: Mapping[tuple[str, str], Shape]) -> Question:
    ways = [shapes[hop] for way in (path.hops, path.back) for hop in pairwise(way)]
    seconds = sum(shape.latency + 4 * shape.jitter for shape in ways)
    sending = [8 * ECHO_WIRE / shape.rate for shape in ways if shape.rate]
    return Question(path.source, path.target, len(ways), seconds + sum(sending), max(sending, default=0.0), lost(ways))


def covering(plan: NetworkPlan) -> Iterator[tuple[int, int]]:
    """Yield pairs of workers, by rank, whose packets together use every route table entry that packets between workers
    ever use. The farthest worker asks first: its packets use the entries of all routers on the way. Pure."""
    forwarding, left = plan.forwarding, plan.pairs.hops_left
    number = {router: index for index, router in enumerate(plan.routers)}
    rank = {number[worker.router]: worker.rank for worker in plan.workers}
    entries = np.array([forwarding.entries(router) for router in plan.routers])
    met = np.zeros((len(plan.routers), 1 + int(entries.max())), dtype=np.bool_)
    routers = np.arange(len(plan.routers))
    for target in range(len(plan.workers)):
        passing = plan.pairs.passed[:, target] & (left[:, target] > 0)
        while (missing := np.flatnonzero(passing & ~met[routers, entries[:, target]])).size:
            farthest = int(missing[left[missing, target].argmax()])
            source = rank[farthest] if farthest in rank else _sender(plan, plan.routers[farthest], target)
            yield min(source, target), max(source, target)
            for a, b in ((source, target), (target, source)):
                on_the_way = [number[router] for router in forwarding.way(a, b)[:-1]]
                met[on_the_way, entries[on_the_way, b]] = True


def _sender(plan: NetworkPlan, switch: str, target: int) -> int:
    """Return a worker whose packets to the target pass the switch."""
    others = (rank for rank in range(len(plan.workers)) if rank != target)
    return next(rank for rank in others if switch in plan.forwarding.way(rank, target))


def sample(names: Sequence[str], affordable: int) -> list[tuple[str, str]]:
    """Return all pairs where there are not too many; else every worker with some others, near and far. Pure."""
    most = min(affordable, ALL_PAIRS * (ALL_PAIRS - 1) // 2)
    count = len(names)
    if count * (count - 1) // 2 <= most:
        return list(combinations(names, 2))
    farthest = count // 2
    steps = max(1, min(farthest, most // count))
    apart = {max(1, round(farthest * step / steps)) for step in range(1, steps + 1)}
    numbers = dict.fromkeys(frozenset((i, (i + step) % count)) for step in sorted(apart) for i in range(count))
    return [(names[min(pair)], names[max(pair)]) for pair in numbers]


@dataclass
class Answers:
    """The answers to the questions, by number."""

    arrived: set[int]  # at their target
    answered: set[int]


def ask(asked: Sequence[Question], ends: Mapping[str, End]) -> Answers:
    """Send all questions, again where no answer comes. Return as soon as all are answered."""
    found = Answers(set(), set())
    with Loop.opened() as loop:
        sockets = {name: _open(loop, ends[name], found) for q in asked for name in (q.source, q.target)}
        order = list(range(len(asked)))
        random.Random(1).shuffle(order)  # those of one link not one after another
        wait = FIRST_WAIT
        for attempt in range(max((question.tries for question in asked), default=0)):
            left = [n for n in order if n not in found.answered and attempt < asked[n].tries]
            if not left:
                break
            due = time.monotonic()
            for number in left:
                question = asked[number]
                with suppress(OSError):  # no route, for one: it stays unanswered
                    sockets[question.source].sendto(_packet(number, 0), sockets[question.target].getsockname())
                due += question.cost
                if due - time.monotonic() > SELECT_SECONDS:
                    loop.run_until(due)
            deadline = time.monotonic() + wait + max(1.5 * asked[number].seconds for number in left)
            while time.monotonic() < deadline and not found.answered.issuperset(left):
                loop.serve(deadline - time.monotonic())
            wait = min(LONGEST_WAIT, 2 * wait)
    return found


def _packet(number: int, is_answer: int) -> bytes:
    return PACKET.pack(number, is_answer).ljust(ECHO_BYTES, b".")


def _open(loop: Loop, end: End, found: Answers) -> socket.socket:
    """Open a worker's socket, which answers others' questions and receives the answers to its own."""
    made = loop.make(end, socket.SOCK_DGRAM)
    made.bind((end.address, 0))

    def receive() -> None:
        with suppress(OSError):  # nothing left to read
            while True:
                data, sender = made.recvfrom(ECHO_BYTES)
                if len(data) < ECHO_BYTES:  # somebody else's
                    continue
                number, is_answer = PACKET.unpack_from(data)
                if is_answer:
                    found.answered.add(number)
                else:
                    found.arrived.add(number)
                    made.sendto(_packet(number, 1), sender)

    loop.on(made, selectors.EVENT_READ, receive)
    return made


def judge(asked: Sequence[Question], found: Answers) -> Verdict:
    """Judge a network invalid where some workers do not reach each other: it is not the one asked for. Pure."""
    silent = [number for number in range(len(asked)) if number not in found.answered]
    if not silent:
        return Verdict("faithful")
    words = []
    for number in silent[:MOST_NAMED]:
        one, arrived = asked[number], number in found.arrived
        sender, receiver = (one.target, one.source) if arrived else (one.source, one.target)
        words.append(f"nothing from {sender} arrives at {receiver}")
    if len(silent) > MOST_NAMED:
        words.append("…")
    many = f"{len(silent)} of {len(asked)} pairs of workers that were asked do not reach each other"
    return Verdict("invalid", (f"{many}: {', '.join(words)}",))
