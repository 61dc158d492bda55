"""Packets that overtake, come twice or are damaged, and delays of several shapes: by a real netem."""

from __future__ import annotations

import selectors
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.network import measure, setting
from testbed.network.calibrate import Calibration, calibrate
from testbed.network.client import Client, start
from testbed.network.measure import NUMBER, SO_TIMESTAMPNS, End, Loop

from .examples import ends, network

pytestmark = [pytest.mark.netem, pytest.mark.slow]

PLAN = network(
    """{topology: {links: [[w0, w1], [w1, w2], [w2, w3], [w3, w4]]}, link: {latency: 100ms, rate: 20mbit}, links: [
      {between: [w0, w1], reorder: 8%, duplicate: 6%, corrupt: 5%},
      {between: [w1, w2], rate: unlimited, jitter: {spread: 20ms, shape: normal}},
      {between: [w2, w3], rate: unlimited, jitter: {spread: 20ms, shape: pareto}},
      {between: [w3, w4], rate: unlimited, jitter: {spread: 20ms, shape: paretonormal}}]}""",
    name="disturbed",
)
PACKETS, APART = 1500, 0.002  # seconds
SAMPLE = 0.1  # of a spread, measured with so many packets while other tests run


@pytest.fixture(scope="module")
def handle(own_state: Path) -> Iterator[Client]:
    made, _ = start(PLAN)
    try:
        yield made
    finally:
        made.close()


def train(handle: Client, packets: int = 2000) -> measure.Train:
    """From w0 to w1, where nothing else is under way."""

    def ask(inner: Client) -> measure.Train:
        with ends(inner, ["w0", "w1"]) as found:
            return measure.udp_trains([measure.Order(found["w0"], found["w1"], 10e6, packets)], 1.0, spin=False)[0]

    return handle.run(ask)


def near(share: float, packets: int = 2000) -> object:
    """Within five standard deviations of a fair coin."""
    return pytest.approx(share, abs=max(0.002, 5 * (share * (1 - share) / packets) ** 0.5))


def test_packets_overtake_come_twice_and_are_damaged_as_often_as_asked(handle: Client) -> None:
    found = train(handle)
    assert found.loss == near(0.05 * (1 - 0.06))  # both copies are hardly ever damaged
    assert found.share("repeated") == near(0.06 * 0.95**2)
    assert found.share("early") == near(0.08 * 0.95)


def test_each_ends_when_it_is_set_to_nothing_on_the_running_link(handle: Client) -> None:
    """netem keeps what a change leaves out."""
    setting.apply(handle, "w0-w1", setting.parse(["reorder=0%", "duplicate=0%", "corrupt=1%"]))
    found = train(handle)
    assert found.loss == near(0.01)
    assert (found.share("repeated"), found.share("early")) == (0, 0)
    setting.apply(handle, "w0-w1", setting.parse(["corrupt=0%"]))
    assert train(handle, 500).loss == 0
    setting.apply(handle, "w0-w1", setting.parse(["duplicate=50%", "down"]))
    assert train(handle, 500).received == 0
    setting.apply(handle, "w0-w1", setting.parse(["duplicate=6%", "reorder=8%", "corrupt=5%", "up"]))


def test_the_calibration_judges_all_of_it(handle: Client) -> None:
    def others(found: Calibration) -> set[str]:
        return {name for probe in found.probes for name in probe.there.counted}

    found = calibrate(handle, PLAN)
    probe = next(one for one in found.probes if one.name == "w0-w1")
    assert others(found) == {"repeated", "early"}
    for way in (probe.there, probe.back):
        assert all(one.measured is not None for one in way.shares.values())
        assert way.judge_shares("w0-w1").grade == "faithful"
        assert way.shares["early"].asked == pytest.approx(0.08 * (1 - way.loss))


def delays(handle: Client, *pairs: tuple[str, str]) -> list[list[float]]:
    """Seconds that packets took, one way, each pair's side by side; by the kernel's clock where they arrive."""

    def ask(inner: Client) -> list[list[float]]:
        with ends(inner) as found, Loop.opened() as loop:
            lines = [_line(loop, found[a], found[b]) for a, b in pairs]
            for _ in range(PACKETS):
                due = time.monotonic() + APART
                for sender, _, _ in lines:
                    sender.send(NUMBER.pack(time.time_ns()))
                loop.run_until(due)
            loop.run_until(time.monotonic() + 0.5)
            return [took for _, _, took in lines]

    return handle.run(ask)


def _line(loop: Loop, source: End, target: End) -> tuple[socket.socket, socket.socket, list[float]]:
    receiver, sender = loop.make(target, socket.SOCK_DGRAM), loop.make(source, socket.SOCK_DGRAM)
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiver.bind((target.address, 0))
    sender.connect(receiver.getsockname())
    took: list[float] = []

    def fetch() -> None:
        data, _, came_ns = measure._received(receiver)
        took.append((came_ns - NUMBER.unpack(data)[0]) / 1e9)

    loop.on(receiver, selectors.EVENT_READ, fetch)
    return sender, receiver, took


def skewness(values: list[float]) -> float:
    mean, spread = statistics.fmean(values), statistics.pstdev(values)
    return statistics.fmean(((value - mean) / spread) ** 3 for value in values)


def test_delays_are_spread_as_their_shape_says(handle: Client) -> None:
    normal, pareto, between = delays(handle, ("w1", "w2"), ("w2", "w3"), ("w3", "w4"))
    for found in (normal, pareto, between):
        assert len(found) == PACKETS
        assert statistics.fmean(found) == pytest.approx(0.1, abs=0.004)
        assert statistics.pstdev(found) == pytest.approx(0.02, rel=SAMPLE)
    assert abs(skewness(normal)) < 0.4 < 1 < skewness(between) < skewness(pareto)
    assert statistics.median(pareto) < 0.096  # most packets come sooner than the mean, few much later
    assert min(normal) < 0.06 < min(between) < 0.078 < min(pareto)


def test_a_shape_can_be_taken_back_on_the_running_link(handle: Client) -> None:
    setting.apply(handle, "w2-w3", setting.parse(["jitter=20ms"]))
    setting.apply(handle, "w1-w2", setting.parse(["jitter=20ms:pareto"]))
    uniform, pareto = delays(handle, ("w2", "w3"), ("w1", "w2"))
    assert statistics.pstdev(uniform) == pytest.approx(0.02, rel=SAMPLE)
    assert max(uniform) < 0.1 + 0.02 * 3**0.5 + 0.01
    assert abs(skewness(uniform)) < 0.3
    assert skewness(pareto) > 1
