"""`testbed bench network`: how accurate the emulated network is on this machine, and how fast it comes and goes."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from testbed.bench import mininet_ring
from testbed.bench.table import Row
from testbed.link.netem import ideal_goodput
from testbed.network import measure, priority
from testbed.network.calibrate import choose_probes
from testbed.network.client import Client, start
from testbed.network.measure import End
from testbed.network.messages import Attach, attach_pfifo
from testbed.network.probe import choose
from testbed.network.probes import Way
from testbed.plan.make import plan
from testbed.plan.model import NetworkPlan
from testbed.scenario.load import loads
from testbed.verdict import GOODPUT_RELATIVE, RTT_ABSOLUTE, RTT_RELATIVE

POINTS = (("10mbit", "25ms"), ("100mbit", "5ms"), ("500mbit", "1ms"))
TOGETHER_UP_TO = 100e6  # bit/s: above it eight links at once are more than two cores carry
LOSS_PACKETS = 6000
ECHOES = 20
MTU = 1500  # of all links here
READY_GOALS = {8: 3.0, 32: 6.0}
DOWN_GOAL = 1.5


def run(box: str = "auto", say: Callable[[str], None] = lambda _: None) -> list[Row]:
    """All rows; takes about two minutes, in this kernel twice as long: Mininet's links are measured, too."""
    kind = choose(box).kind
    rows: list[Row] = []
    for rate, latency in POINTS:
        say(f"ring of 8, {rate}, {latency}")
        network, where = _ring(8, rate, latency), f"{rate} {latency}"
        rows += _with_network(network, box, partial(_accuracy, where=where))
        if kind == "host" and not mininet_ring.missing():
            say("the same with Mininet's TCLinks")
            rows += _beside(network, where)
    say("loss, several hops, two directions")
    rows += _with_network(_special(), box, _special_rows)
    for workers in READY_GOALS:
        say(f"ready and down, {workers} workers")
        rows += _lifetimes(workers, box)
    say("building in this kernel beside Mininet")
    return rows + _building(kind)


def _ring(workers: int, rate: str, latency: str, name: str = "bench") -> NetworkPlan:
    link = f"{{latency: {latency}, rate: {rate}}}"
    text = f"workers: {workers}\nnetwork: {{topology: ring, link: {link}}}\nmethods: [allreduce]\nname: {name}\n"
    return plan(loads(text, "bench")).network


def _with_network(network: NetworkPlan, box: str, work: Callable[[Client, NetworkPlan], list[Row]]) -> list[Row]:
    network = replace(network, name=f"{network.name}-{os.getpid()}")
    handle, _ = start(network, box)
    try:
        return handle.run(lambda inner: work(inner, network))
    finally:
        handle.close()


def _ends(handle: Client, network: NetworkPlan) -> tuple[dict[str, End], bool]:
    """Called in the measuring process, which first of all goes before whatever else runs; also, whether it may spin."""
    may_spin = priority.go_first(handle.state.box)
    found = {}
    for worker in network.workers:
        with handle.namespace(worker.name) as fd:
            found[worker.name] = End(worker.name, os.dup(fd), worker.address)
    return found, may_spin


def _accuracy(handle: Client, network: NetworkPlan, where: str) -> list[Row]:
    ends, may_spin = _ends(handle, network)
    probes = choose_probes(network)
    pairs = [(ends[probe.source], ends[probe.target]) for probe in probes]
    return _link_rows(pairs, probes[0].latency, probes[0].there, where, may_spin=may_spin)


def _link_rows(pairs: list[tuple[End, End]], asked: float, way: Way, where: str, *, may_spin: bool) -> list[Row]:
    """Round trips of every link, goodput of each link alone and of all at once; the worst of each is the row."""
    times = [measure.round_trips([pair], ECHOES, spin=may_spin)[0] for pair in pairs]
    rtt = max((statistics.median(some) for some in times), key=lambda one: abs(one - asked))
    allowed = max(RTT_ABSOLUTE, RTT_RELATIVE * asked)
    rows = [
        Row(
            f"{where}: round trip, worst link",
            rtt * 1e3,
            "ms",
            "asked",
            asked * 1e3,
            f"within {allowed * 1e3:.2g} ms",
            abs(rtt - asked) <= allowed,
        )
    ]
    assert way.rate
    ideal = ideal_goodput(way.rate, MTU)
    # Long enough for every congestion control to have found the rate: what follows is the link, not the start.
    warm_up, window = 0.5 + 30 * asked, max(0.6, 1600 * 8 * MTU / way.rate)
    alone = min(measure.tcp_goodput([pair], warm_up, window)[0] for pair in pairs)
    rows.append(_goodput_row(f"{where}: goodput alone, worst link", alone, ideal))
    if way.rate <= TOGETHER_UP_TO:
        together = min(measure.tcp_goodput(pairs, warm_up, 2 * window))
        rows.append(_goodput_row(f"{where}: goodput, all at once, worst link", together, ideal))
    return rows


def _beside(network: NetworkPlan, where: str) -> list[Row]:
    """The same links made by Mininet on the same kernel. Its figures are no goals of ours: whether it meets them is
    for the reader to see."""
    probe = choose_probes(network)[0]
    with mininet_ring.neighbours(len(network.workers), network.links[0].ab) as pairs:
        rows = _link_rows(pairs, probe.latency, probe.there, f"Mininet, {where}", may_spin=False)
    return [replace(row, goal="", met=None) for row in rows]


def _goodput_row(metric: str, measured: float, ideal: float) -> Row:
    goal = 1 - GOODPUT_RELATIVE
    return Row(metric, measured / 1e6, "Mbit/s", "TCP's ideal", ideal / 1e6, f"≥ {goal:g} ×", measured >= goal * ideal)


def _special() -> NetworkPlan:
    """A chain whose links differ: loss on the first, four hops in all, an asymmetric last one."""
    text = """
name: bench
workers: 6
network:
  topology: chain
  link: {latency: 5ms, rate: 100mbit}
  links:
    - {between: [w0, w1], rate: 50mbit, loss: 1%}
    - {between: [w2, w3], latency: 10ms, rate: 20mbit}
    - {from: w4, to: w5, latency: 20ms, rate: 10mbit}
    - {from: w5, to: w4, latency: 2ms, rate: 40mbit}
methods: [allreduce]
"""
    return plan(loads(text, "bench")).network


def _special_rows(handle: Client, network: NetworkPlan) -> list[Row]:
    ends, may_spin = _ends(handle, network)
    order = measure.Order(ends["w0"], ends["w1"], 0.8 * 50e6, LOSS_PACKETS)
    (train,) = measure.udp_trains([order], spin=may_spin)
    lost = 100 * train.loss
    rows = [Row("1 % loss, full-sized packets lost", lost, "%", "asked", 1.0, "± 0.3 points", abs(lost - 1.0) <= 0.3)]
    path = network.forwarding.path(1, 5)
    rtt = statistics.median(measure.round_trips([(ends["w1"], ends["w5"])], ECHOES, spin=may_spin)[0])
    allowed = max(4 * RTT_ABSOLUTE, RTT_RELATIVE * path.rtt)  # each hop may be off by what one link may
    rows.append(
        Row(
            "4 hops: round trip",
            rtt * 1e3,
            "ms",
            "sum of latencies",
            path.rtt * 1e3,
            "",
            abs(rtt - path.rtt) <= allowed,
        )
    )
    for source, target, rate, label in (
        ("w1", "w4", 20e6, "3 hops: goodput"),
        ("w4", "w5", 10e6, "asymmetric link: goodput there"),
        ("w5", "w4", 40e6, "asymmetric link: goodput back"),
    ):
        found = measure.tcp_goodput([(ends[source], ends[target])], 1.0, 1.0)[0]
        rows.append(_goodput_row(label, found, ideal_goodput(rate, MTU)))
    return rows


def _lifetimes(workers: int, box: str) -> list[Row]:
    """From the start of the process that builds to a network that carries packets, and down again; median of three."""
    ups, downs, kind = [], [], ""
    for _ in range(3):
        network = _ring(workers, "100mbit", "5ms", name=f"bench-{os.getpid()}")
        began = time.monotonic()
        handle, choice = start(network, box)
        kind = choice.kind
        ups.append(time.monotonic() - began)
        began = time.monotonic()
        handle.close()
        downs.append(time.monotonic() - began)
    up, down, goal = statistics.median(ups), statistics.median(downs), READY_GOALS[workers]
    return [
        Row(f"{workers} workers ready, {kind} box", up, "s", goal=f"≤ {goal:g} s", met=up <= goal),
        Row(f"{workers} workers down, {kind} box", down, "s", goal=f"≤ {DOWN_GOAL:g} s", met=down <= DOWN_GOAL),
    ]


def _building(kind: str) -> list[Row]:
    """The host box's own work beside Mininet's; where this kernel has no netem, with plain queues in its place and with
    bare links in Mininet's."""
    workers, shaped = (8, True) if kind == "host" else (32, False)
    network = _ring(workers, "100mbit", "5ms")
    ours = _median_of(lambda: _build_here(network, None if shaped else attach_pfifo))
    why_not = mininet_ring.missing()
    link = network.links[0].ab if shaped else None
    theirs = None if why_not else _median_of(lambda: mininet_ring.build(workers, link))
    reference = f"Mininet: {why_not}" if why_not else "Mininet, TCLinks" if shaped else "Mininet, bare links"
    rows = []
    for number, what in enumerate(("up", "down")):
        other = theirs[number] if theirs else None
        met = None if other is None else ours[number] < other
        metric = f"ring of {workers} in this kernel, {what}"
        rows.append(Row(metric, ours[number], "s", reference, other, "faster", met))
    return rows


def _median_of(measure_once: Callable[[], tuple[float, float]], times: int = 3) -> tuple[float, float]:
    found = [measure_once() for _ in range(times)]
    return statistics.median(up for up, _ in found), statistics.median(down for _, down in found)


def _build_here(network: NetworkPlan, attach: Attach | None) -> tuple[float, float]:
    from testbed.network.daemon import Daemon

    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        daemon = Daemon(network, Path(directory), "host")
        daemon.build(attach)
        built = time.monotonic()
        daemon.close()
        descriptors: Sequence[int] = [*daemon.workers.values(), daemon.box_namespace]
        for fd in descriptors:
            os.close(fd)
        return built - began, time.monotonic() - built
