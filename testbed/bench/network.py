"""`testbed bench network`: how accurate the emulated network is on this machine, and how fast it comes and goes."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from testbed.bench.table import Row
from testbed.network import measure, priority
from testbed.network.calibrate import choose_probes
from testbed.network.handle import Handle, start
from testbed.network.measure import End
from testbed.network.shaping import ideal_goodput
from testbed.plan import NetworkPlan, plan
from testbed.results.verdict import GOODPUT_RELATIVE, RTT_ABSOLUTE, RTT_RELATIVE
from testbed.scenario.load import loads

POINTS = (("10mbit", "25ms"), ("100mbit", "5ms"), ("500mbit", "1ms"))
TOGETHER_UP_TO = 100e6  # bit/s: above it eight links at once are more than two cores carry
LOSS_PACKETS = 6000
ECHOES = 20
READY_GOALS = {8: 3.0, 32: 6.0}
DOWN_GOAL = 1.5


def run(box: str = "auto", say: Callable[[str], None] = lambda _: None) -> list[Row]:
    """All rows; takes about two minutes."""
    rows: list[Row] = []
    for rate, latency in POINTS:
        say(f"ring of 8, {rate}, {latency}")
        rows += _with_network(_ring(8, rate, latency), box, partial(_accuracy, where=f"{rate} {latency}"))
    say("loss, several hops, two directions")
    rows += _with_network(_special(), box, _special_rows)
    for workers in READY_GOALS:
        say(f"ready and down, {workers} workers")
        rows += _lifetimes(workers, box)
    say("building in this kernel beside Mininet")
    return rows + _building()


def _ring(workers: int, rate: str, latency: str, name: str = "bench") -> NetworkPlan:
    link = f"{{latency: {latency}, rate: {rate}}}"
    text = f"workers: {workers}\nnetwork: {{topology: ring, link: {link}}}\nmethods: [allreduce]\nname: {name}\n"
    return plan(loads(text, "bench")).network


def _with_network(network: NetworkPlan, box: str, work: Callable[[Handle, NetworkPlan], list[Row]]) -> list[Row]:
    network = replace(network, name=f"{network.name}-{os.getpid()}")
    handle, _ = start(network, box)
    try:
        return handle.run(lambda inner: work(inner, network))
    finally:
        handle.close()


def _ends(handle: Handle, network: NetworkPlan) -> dict[str, End]:
    """Called in the measuring process, which first of all goes before whatever else runs."""
    priority.raise_above_workers([os.getpid()])
    found = {}
    for worker in network.workers:
        with handle.namespace(worker.name) as fd:
            found[worker.name] = End(worker.name, os.dup(fd), worker.address)
    return found


def _accuracy(handle: Handle, network: NetworkPlan, where: str) -> list[Row]:
    """Round trips of every link, goodput of each link alone and of all at once; the worst of each is the row."""
    ends = _ends(handle, network)
    probes = choose_probes(network)
    pairs = [(ends[probe.source], ends[probe.target]) for probe in probes]
    asked = probes[0].latency
    times = [measure.round_trips([pair], ECHOES)[0] for pair in pairs]
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
    rate = probes[0].there.rate
    assert rate
    ideal = ideal_goodput(rate, network.mtu)
    # Long enough for every congestion control to have found the rate: what follows is the link, not the start.
    warm_up, window = 0.5 + 30 * asked, max(0.6, 1600 * 8 * network.mtu / rate)
    alone = min(measure.tcp_goodput([pair], warm_up, window)[0] for pair in pairs)
    rows.append(_goodput_row(f"{where}: goodput alone, worst link", alone, ideal))
    if rate <= TOGETHER_UP_TO:
        together = min(measure.tcp_goodput(pairs, warm_up, 2 * window))
        rows.append(_goodput_row(f"{where}: goodput, all 8 at once, worst link", together, ideal))
    return rows


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


def _special_rows(handle: Handle, network: NetworkPlan) -> list[Row]:
    ends = _ends(handle, network)
    train = measure.udp_train(ends["w0"], ends["w1"], 0.8 * 50e6, LOSS_PACKETS)
    lost = 100 * train.loss
    rows = [Row("1 % loss, full-sized packets lost", lost, "%", "asked", 1.0, "± 0.3 points", abs(lost - 1.0) <= 0.3)]
    paths = {(path.source, path.target): path for path in network.paths}
    path = paths["w1", "w5"]
    rtt = statistics.median(measure.round_trips([(ends["w1"], ends["w5"])], ECHOES)[0])
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
        rows.append(_goodput_row(label, found, ideal_goodput(rate, network.mtu)))
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


def _building(workers: int = 32) -> list[Row]:
    """The host box's own work (with pfifo in netem's place, so that it runs on any kernel) beside Mininet's."""
    network = _ring(workers, "100mbit", "5ms")
    ours_up, ours_down = _median_of(lambda: _build_here(network))
    mininet = _median_of(lambda: _build_mininet(workers)) if shutil.which("mnexec") else None
    up, down = mininet or (None, None)
    reference = "Mininet" if mininet else "Mininet: no mnexec (apt-get install mininet)"
    return [
        Row(
            f"ring of {workers} in this kernel, up",
            ours_up,
            "s",
            reference,
            up,
            "faster",
            None if up is None else ours_up < up,
        ),
        Row(
            f"ring of {workers} in this kernel, down",
            ours_down,
            "s",
            reference,
            down,
            "faster",
            None if down is None else ours_down < down,
        ),
    ]


def _median_of(measure_once: Callable[[], tuple[float, float]], times: int = 3) -> tuple[float, float]:
    found = [measure_once() for _ in range(times)]
    return statistics.median(up for up, _ in found), statistics.median(down for _, down in found)


def _build_here(network: NetworkPlan) -> tuple[float, float]:
    from testbed.network.keeper import Keeper
    from testbed.network.messages import attach_pfifo

    with tempfile.TemporaryDirectory() as directory:
        began = time.monotonic()
        keeper = Keeper(network, Path(directory), "host")
        keeper.build(attach_pfifo)
        built = time.monotonic()
        keeper.close()
        descriptors: Sequence[int] = [*keeper.workers.values(), keeper.box_namespace]
        for fd in descriptors:
            os.close(fd)
        return built - began, time.monotonic() - built


def _build_mininet(workers: int) -> tuple[float, float]:
    """The same ring, made by Mininet as its users would: a router and a host each, bare links; no addresses on the
    links, no routes, no shaping, which ours has."""
    from mininet.log import setLogLevel
    from mininet.net import Mininet

    setLogLevel("critical")
    began = time.monotonic()
    net: Any = Mininet(controller=None)
    routers = [net.addHost(f"r{i}") for i in range(workers)]
    for i, router in enumerate(routers):
        net.addLink(router, routers[(i + 1) % workers])
        net.addLink(router, net.addHost(f"h{i}"))
    net.build()
    net.start()
    built = time.monotonic()
    net.stop()
    return built - began, time.monotonic() - built
