"""Measures every link as the workers see it, before (and after) training, and compares it with the scenario.

A probe is a pair of workers; together the probes cross every link. Between direct neighbours a probe is exactly one
link, else a path, compared with the path's latency and its slowest rate.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from testbed.link.counts import COUNTS, whole
from testbed.link.netem import ideal_goodput, wire_bytes
from testbed.link.shape import Shape
from testbed.network import measure, priority, reach
from testbed.network.agent import allow_descriptors
from testbed.network.client import Client
from testbed.network.measure import End, Order
from testbed.network.probes import Counted, Probe, Way
from testbed.plan.model import NetworkPlan
from testbed.plan.model import WorkerPath as Route
from testbed.verdict import Verdict, judge_goodput, judge_rtt, worst

ECHOES = ((0.1, 10), (1.0, 5), (math.inf, 3))  # where a round trip takes less than so many seconds: how many
LOST_AFTER = 0.5  # seconds, an echo is, or later where the way is long
ECHO_APART = 1e-3  # seconds of a round trip for each pair that is asked meanwhile, as they queue for the same core
PAIRS_AT_ONCE = (4, 10)  # at least, at most
SIDE_BY_SIDE_RATE = 400e6  # bit/s in one round, which two cores carry without disturbing the measurement
MAXIMUM_STREAMS = 48  # per direction; beyond it links are sampled and the table says so
LOSS_PACKETS = 1500
LOSS_RATE = 100e6  # bit/s at most, while packets are counted
OTHERS = 4  # packets under way on a link, so that one is certain to overtake another
STREAM_PACKETS = 400  # in the window of a TCP stream, to see 2 %
STREAM_SECONDS = 0.2  # at least, of it
WARM_UP = (0.05, 12)  # seconds, and round trips, before it
LONGEST_WINDOW = 4.0  # seconds
LONGEST_RTT = 0.1  # seconds; on longer ways TCP needs too long to get going, and is only used
LONGEST_FAST_RTT = 0.5  # up to here, on those that are too fast for anything else
TRAIN_PACKETS = (4, 300)  # at least, and enough, of full size, where TCP cannot measure
TRAIN_SECONDS = 0.3  # at least, where that is more, and
TRAIN_RTTS = 1.5  # so that a queue that is too short for what is under way shows
TRAIN_RATE = 200e6  # bit/s in all, up to which one process sends packets one by one in time
TRAIN_RETRIES = 2  # of a train whose sender was too slow
TRAIN_DRAIN = 0.3  # seconds beyond what the link itself needs, for the last packets
SPIN_BELOW = 0.02  # seconds; on longer round trips the time to wake up does not count, and spinning takes a core
TOO_BUSY = "could not be measured: the sender was too slow, is the machine busy?"
DRAIN_LOOKS = 100  # at the queues, until they are empty
SECOND_LOOKS = 2  # a measurement outside its gate is taken again: the machine may have been busy


@dataclass(frozen=True)
class Calibration:
    """All probes and their combined verdict."""

    probes: tuple[Probe, ...]
    verdict: Verdict
    unmeasured: int  # directions with a rate whose goodput was not measured, to keep it short (not: for want of time)


def choose_probes(plan: NetworkPlan) -> list[Probe]:
    """Return pairs of workers that together cross every link in each direction that packets take: neighbours first,
    then pairs that share no link with others and can be measured at once, then as few as needed for the rest."""
    shapes = {(link.a, link.b): (link.name, link.ab) for link in plan.links}
    shapes |= {(link.b, link.a): (link.name, link.ba) for link in plan.links}
    missing = plan.pairs.used()
    probes: list[Probe] = []
    for pairs in _by_length(plan):
        for enough in (set.issuperset, lambda missing, hops: bool(missing & hops)):
            for pair in pairs:
                if not missing:
                    return probes
                path = plan.forwarding.path(*pair)
                hops = {*pairwise(path.hops), *pairwise(path.back)}
                if enough(missing, hops):
                    missing -= hops
                    there, back = ([shapes[hop] for hop in pairwise(way)] for way in (path.hops, path.back))
                    probes.append(_probe(path, there, back))
    return probes


def _by_length(plan: NetworkPlan) -> Iterator[list[tuple[int, int]]]:
    """Yield pairs of ranks, the lower one first, by how many links lie between them."""
    hops = np.triu(plan.pairs.hops)
    for length in range(1, 1 + int(hops.max(initial=0))):
        yield [(a, b) for a, b in np.argwhere(hops == length).tolist()]


def _probe(path: Route, there: Sequence[tuple[str, Shape]], back: Sequence[tuple[str, Shape]]) -> Probe:
    ways = [shape for _, shape in (*there, *back)]
    sending = sum(8 * measure.ECHO_WIRE / shape.rate for shape in ways if shape.rate)
    return Probe(
        path.source,
        path.target,
        tuple(name for name, _ in there),
        path.rtt + sending,
        sum(shape.jitter for shape in ways),
        _way([shape for _, shape in there]),
        _way([shape for _, shape in back]),
        uses=frozenset(name for name, _ in (*there, *back)),
    )


def _way(shapes: Sequence[Shape]) -> Way:
    asked = {name: Counted(share) for name, count in COUNTS.items() if (share := count.expected(shapes))}
    loss = asked.pop("lost", Counted(0.0)).asked
    return Way(
        min((shape.rate for shape in shapes if shape.rate), default=None), loss, counted=asked, whole=whole(shapes)
    )


def rounds(probes: Sequence[Probe], forward: bool, side_by_side: float = SIDE_BY_SIDE_RATE) -> list[list[int]]:
    """Group the probes that may run at once: none shares a link, and together they do not overload the machine. A
    worker may be in several: its port has no limit. Pure."""
    result: list[list[int]] = []
    busy: list[set[str]] = []
    load: list[float] = []
    for number, probe in enumerate(probes):
        rate = (probe.there if forward else probe.back).rate or side_by_side
        for slot in range(len(result)):
            if not busy[slot] & probe.uses and load[slot] + rate <= side_by_side:
                break
        else:
            slot = len(result)
            result.append([])
            busy.append(set())
            load.append(0.0)
        result[slot].append(number)
        busy[slot] |= probe.uses
        load[slot] += rate
    return result


def calibrate(handle: Client, plan: NetworkPlan, *, streams: bool = True) -> Calibration:
    """Measure the running network against its current plan; without streams, only round trips. Asked and measured
    values are in scenario time."""
    return handle.run(lambda inner: _Calibrator(inner, plan.stretched(), plan.slow_motion).run(streams))


def in_scenario_time(probe: Probe, factor: float) -> Probe:
    """Convert what was measured in real time, in slow motion by this factor. Pure."""

    def way(one: Way) -> Way:
        rate = None if one.rate is None else round(one.rate * factor)
        return replace(one, rate=rate, goodput=None if one.goodput is None else one.goodput * factor)

    if factor == 1:
        return probe
    return replace(
        probe,
        latency=probe.latency / factor,
        jitter=probe.jitter / factor,
        rtt=None if probe.rtt is None else probe.rtt / factor,
        spread=probe.spread / factor,
        there=way(probe.there),
        back=way(probe.back),
    )


class _Calibrator:
    """Runs inside a child process that may enter the workers' namespaces. It measures in real time and judges in
    scenario time."""

    def __init__(self, handle: Client, plan: NetworkPlan, slow_motion: float) -> None:
        self.handle = handle
        self.slow_motion = slow_motion
        self.mtu = plan.mtu
        self.probes = choose_probes(plan)
        self.questions = reach.questions(plan, handle.call("status")["partition"])
        allow_descriptors(100 + 2 * len(plan.workers))
        self.ends = {
            worker.name: End(worker.name, _keep(handle, worker.name), worker.address) for worker in plan.workers
        }

    def run(self, streams: bool) -> Calibration:
        self.may_spin = priority.go_first(self.handle.state.box)
        reached = reach.judge(self.questions, reach.ask(self.questions, self.ends))
        every = list(range(len(self.probes)))
        self.with_second_looks(every, self.measure_round_trips, lambda n: self.judge_round_trip(self.probes[n]))
        for forward in (True, False) if streams else ():
            self.with_second_looks(
                every,
                partial(self.measure_streams, forward),
                lambda n, forward=forward: self.judge_way(self.probes[n], forward),  # type: ignore[misc]
            )
        limited = [way.rate for probe in self.probes for way in (probe.there, probe.back)]
        self.unmeasured = sum(map(bool, limited)) - sum(
            way.goodput is not None or way.too_busy for probe in self.probes for way in (probe.there, probe.back)
        )
        probes = tuple(in_scenario_time(probe, self.slow_motion) for probe in self.probes)
        return Calibration(probes, worst([reached, *map(self.judge, self.probes)]), self.unmeasured)

    def with_second_looks(
        self, numbers: list[int], take: Callable[[list[int], int], None], judge: Callable[[int], Verdict]
    ) -> None:
        """Measure, and measure again what is outside its tolerance. `take` gets the number of the attempt, from 1 on:
        the first is short, which nearly always suffices."""
        for look in range(1, 2 + SECOND_LOOKS):
            take(numbers, look)
            numbers = [number for number in numbers if judge(number).grade != "faithful"]
            if not numbers:
                return

    def pair(self, number: int, forward: bool = True) -> tuple[End, End]:
        probe = self.probes[number]
        source, target = self.ends[probe.source], self.ends[probe.target]
        return (source, target) if forward else (target, source)

    def measure_round_trips(self, numbers: Sequence[int], look: int) -> None:
        least, most = (round(count * self.slow_motion) for count in PAIRS_AT_ONCE)  # they disturb each other less
        left = sorted(numbers, key=lambda n: self.probes[n].latency)
        while left:
            fastest = self.probes[left[0]].latency
            at_once = max(least, min(most, int(fastest / ECHO_APART))) if look == 1 else least
            some, left = left[:at_once], left[at_once:]
            slowest = max(self.probes[n].latency + 4 * self.probes[n].jitter for n in some)
            count = next(count for longest, count in ECHOES if slowest < longest)
            pairs = [self.pair(n) for n in some]
            spin = self.may_spin and slowest < SPIN_BELOW
            found = measure.round_trips(pairs, count, max(LOST_AFTER, 1.5 * slowest), spin=spin)
            for number, times in zip(some, found, strict=True):
                times = self.regular(number, times)
                rtt = statistics.median(times) if times else None
                spread = times[3 * len(times) // 4] - times[len(times) // 4] if times else 0.0
                self.probes[number] = replace(self.probes[number], rtt=rtt, spread=spread)

    def regular(self, number: int, times: list[float]) -> list[float]:
        """Return the packets in order, without those that overtook others: they skipped the latency of a link."""
        probe = self.probes[number]
        share = (1 - probe.there.asked("early")) * (1 - probe.back.asked("early"))
        return sorted(times)[len(times) - math.ceil(share * len(times)) :]

    def measure_streams(self, forward: bool, numbers: Sequence[int], look: int) -> None:
        """Use TCP where packets are not disturbed on purpose and the link is neither slow nor long; else trains of UDP
        packets: slow ones to count what happens, some faster than the link for its rate. Trains are also the second
        attempt where TCP did not reach the expected goodput: the cause may be TCP itself."""
        limited = [n for n in numbers if self.way(n, forward).rate or self.way(n, forward).disturbed]
        chosen = limited[:: -(-len(limited) // MAXIMUM_STREAMS)] if limited else []
        clean = [n for n in chosen if self.suits_tcp(n, forward) and not self.suits_second_look(n, forward)]
        disturbed = [n for n in chosen if self.way(n, forward).disturbed]
        slow = [n for n in chosen if n not in clean and self.suits_train(n, forward)]
        for some, at_once, take in (
            (clean, SIDE_BY_SIDE_RATE if look == 1 else 0.0, partial(self.measure_clean, look=look)),
            (disturbed, TRAIN_RATE, self.count_packets),
            (slow, TRAIN_RATE, self.measure_slow),
        ):
            for group in self.rounds(some, forward, at_once):  # no two of which have a link in common
                take(group, forward)
            self.drain()

    def rounds(self, numbers: Sequence[int], forward: bool, side_by_side: float) -> list[list[int]]:
        found = rounds([self.probes[n] for n in numbers], forward, side_by_side)
        return [[numbers[i] for i in group] for group in found]

    def suits_tcp(self, number: int, forward: bool) -> bool:
        way, rtt = self.way(number, forward), self.probes[number].latency
        if way.disturbed or not way.rate or STREAM_PACKETS * 8 * self.mtu / way.rate > LONGEST_WINDOW:
            return False
        return rtt <= (LONGEST_RTT if way.rate <= TRAIN_RATE else LONGEST_FAST_RTT)

    def suits_second_look(self, number: int, forward: bool) -> bool:
        way = self.way(number, forward)
        return (way.goodput is not None or way.too_busy) and way.rate is not None and way.rate <= TRAIN_RATE

    def suits_train(self, number: int, forward: bool) -> bool:
        """Whether packets sent one by one can fill the link, and are enough to measure."""
        way = self.way(number, forward)
        if not way.rate or self.train_packets(number, way.rate) < TRAIN_PACKETS[0]:
            return False
        return way.rate <= TRAIN_RATE * (1 - way.loss)

    def train_packets(self, number: int, rate: float) -> int:
        """Return how many packets show the rate."""
        per_second = rate / (8 * wire_bytes(self.mtu))
        seconds = max(TRAIN_SECONDS, TRAIN_RTTS * self.probes[number].latency)
        return min(max(TRAIN_PACKETS[1], int(seconds * per_second)), int(LONGEST_WINDOW * per_second))

    def measure_clean(self, numbers: Sequence[int], forward: bool, look: int) -> None:
        rtt = max(self.probes[n].latency for n in numbers)
        slowest = min(self.way(n, forward).rate or 0 for n in numbers)
        # Long enough to leave slow start behind and to see many packets, however slow.
        window = max(look * STREAM_SECONDS, 4 * rtt, look * STREAM_PACKETS * 8 * self.mtu / slowest)
        pairs = [self.pair(n, forward) for n in numbers]
        found = measure.tcp_goodput(pairs, look * WARM_UP[0] + WARM_UP[1] * rtt, min(LONGEST_WINDOW, window))
        for number, goodput in zip(numbers, found, strict=True):
            self.set_way(number, forward, replace(self.way(number, forward), goodput=goodput, too_busy=False))

    def measure_slow(self, numbers: Sequence[int], forward: bool) -> None:
        """Send a little more than the link carries, for a while: what arrives shows its rate, and that gives TCP's
        goodput. Where the sender was too slow, try again, one train at a time."""
        left = self.try_trains(numbers, forward)
        for _ in range(TRAIN_RETRIES):
            left = [number for number in left if self.try_trains([number], forward)]

    def try_trains(self, numbers: Sequence[int], forward: bool) -> list[int]:
        """Send the trains; return those that could not be measured."""
        orders, too_busy = [], []
        for number in numbers:
            way = self.way(number, forward)
            assert way.rate
            passed = (1 - way.loss) * (1 - way.asked("early"))  # losses happen before the link
            sent = 1.1 * way.rate / passed
            orders.append(Order(*self.pair(number, forward), sent, self.train_packets(number, way.rate)))
        for number, train in zip(numbers, self.trains(numbers, orders), strict=True):
            if train.received < TRAIN_PACKETS[0]:
                goodput: float | None = 0.0
            elif train.rate is None:
                goodput = None
                too_busy.append(number)
            else:
                goodput = ideal_goodput(train.rate / self.way(number, forward).whole, self.mtu)
            way = replace(self.way(number, forward), goodput=goodput, too_busy=goodput is None)
            self.set_way(number, forward, way)
        return too_busy

    def count_packets(self, numbers: Sequence[int], forward: bool) -> None:
        orders = []
        for number in numbers:
            rate = min(LOSS_RATE, 0.9 * (self.way(number, forward).rate or LOSS_RATE))
            packets = int(min(LOSS_PACKETS, max(20, LONGEST_WINDOW * rate / (8 * wire_bytes(self.mtu)))))
            orders.append(Order(*self.pair(number, forward), rate, packets))
        for number, order, train in zip(numbers, orders, self.trains(numbers, orders), strict=True):
            way = self.way(number, forward)
            counted = {
                name: replace(one, measured=train.share(name) if self.shows(name, number, order.rate) else None)
                for name, one in way.counted.items()
            }
            self.set_way(number, forward, replace(way, lost=train.loss, packets=train.sent, counted=counted))

    def shows(self, count: str, number: int, rate: float) -> bool:
        """Whether packets at this rate follow each other closely enough to show it."""
        probe, apart = self.probes[number], 8 * wire_bytes(self.mtu) / rate
        return not COUNTS[count].needs_others or OTHERS * apart < probe.latency / (2 * probe.hops)

    def trains(self, numbers: Sequence[int], orders: Sequence[Order]) -> list[measure.Train]:
        under_way = max(self.probes[n].latency + 4 * self.probes[n].jitter for n in numbers)
        queued = max(0.1 * order.packets * 8 * wire_bytes(self.mtu) / order.rate for order in orders)
        return measure.udp_trains(orders, TRAIN_DRAIN + under_way + queued, self.mtu, spin=self.may_spin)

    def drain(self) -> None:
        """Wait until these measurements have left the queues; they would disturb the next ones of the same links."""
        for _ in range(DRAIN_LOOKS):
            if not any(queued for *_, queued in self.handle.counters()["links"].values()):
                return
            time.sleep(0.02)

    def way(self, number: int, forward: bool) -> Way:
        return self.probes[number].there if forward else self.probes[number].back

    def set_way(self, number: int, forward: bool, way: Way) -> None:
        probe = self.probes[number]
        self.probes[number] = replace(probe, there=way) if forward else replace(probe, back=way)

    def judge(self, probe: Probe) -> Verdict:
        return worst([self.judge_round_trip(probe), self.judge_way(probe, True), self.judge_way(probe, False)])

    def judge_round_trip(self, probe: Probe) -> Verdict:
        if probe.may_be_silent and probe.rtt is None:
            return Verdict("faithful")
        found = in_scenario_time(probe, self.slow_motion)
        return judge_rtt(probe.name, found.latency, found.rtt, found.jitter)

    def judge_way(self, probe: Probe, forward: bool) -> Verdict:
        found = in_scenario_time(probe, self.slow_motion)
        way = found.there if forward else found.back
        where = f"{probe.source}>{probe.target}" if forward else f"{probe.target}>{probe.source}"
        return worst(
            [
                Verdict("suspect", (f"{where}: {TOO_BUSY}",)) if way.too_busy else Verdict("faithful"),
                judge_goodput(where, way.rate, way.goodput, self.mtu),
                way.judge_shares(where),
            ]
        )


def _keep(handle: Client, worker: str) -> int:
    with handle.namespace(worker) as fd:
        return os.dup(fd)
