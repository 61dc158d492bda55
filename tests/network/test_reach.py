"""Every worker reaches every other one, or calibration says who does not."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.network import namespaces, reach
from testbed.network.calibrate import calibrate
from testbed.network.client import Client, start
from testbed.network.daemon import Daemon
from testbed.network.measure import End
from testbed.network.messages import attach_pfifo
from testbed.network.netlink import Netlink
from testbed.network.reach import Answers, Question

from .examples import network
from .isolated import isolated
from .test_measure import request

RING = network("{topology: ring, link: {latency: 2ms, rate: 100mbit}}", workers=4, name="ring")


def named(count: int) -> list[str]:
    return [f"w{number}" for number in range(count)]


@pytest.mark.parametrize("count", [1, 2, 3, 8, 63, 64])
def test_of_up_to_64_workers_every_pair_is_asked(count: int) -> None:
    pairs = reach.sample(named(count), 10**6)
    assert len(set(pairs)) == len(pairs) == count * (count - 1) // 2


@pytest.mark.parametrize("count", [65, 66, 100, 333, 1000, 5000])
@pytest.mark.parametrize("affordable", [1, 500, 10**6])
def test_of_more_everybody_is_asked_and_the_farthest_is_among_them(count: int, affordable: int) -> None:
    pairs = reach.sample(named(count), affordable)
    assert len(set(pairs)) == len(pairs) <= max(count, min(2016, affordable))
    asked = Counter(name for pair in pairs for name in pair)
    assert set(asked) == set(named(count))
    assert ("w0", f"w{count // 2}") in pairs


def test_whom_nobody_expects_an_answer_from_is_not_asked() -> None:
    plan = network(
        "{topology: chain, link: {latency: 5ms, rate: 8mbit}, links: [{between: [w1, w2], loss: 40%}]}", workers=4
    )
    assert [one.name for one in reach.questions(plan)] == ["w0-w1", "w2-w3"]  # 0.6 there and 0.6 back
    assert [one.name for one in reach.questions(plan, {"w1": ["w0"]})] == ["w2-w3"]
    cut = tuple(replace(link, ab=replace(link.ab, up=False)) for link in RING.links[:1])
    assert "w0-w1" not in [one.name for one in reach.questions(replace(RING, links=cut + RING.links[1:]))]


def test_what_is_known_of_a_way() -> None:
    plan = network("{topology: chain, link: {latency: 5ms, rate: 8mbit, jitter: 1ms, loss: 1%}}", workers=3)
    far = next(one for one in reach.questions(plan) if one.name == "w0-w2")
    assert far.hops == 4
    assert far.seconds == pytest.approx(4 * (0.005 + 0.004 + 58e-6))
    assert far.loss == pytest.approx(1 - 0.99**4)
    assert far.tries == 5  # four per cent are lost: 0.04 ** 5 is less than one in a million
    assert far.cost == pytest.approx(2 * 58e-6)


def test_who_does_not_reach_whom_is_said() -> None:
    asked = [Question(a, b, 2, 0.01, 0.0, 0.0) for a, b in (("w0", "w1"), ("w0", "w2"), ("w1", "w2"), ("w2", "w3"))]
    assert reach.judge(asked, Answers(set(range(4)), set(range(4)))).grade == "faithful"
    some = reach.judge(asked, Answers({0, 2}, {0, 3}))
    assert some.grade == "invalid"
    assert some.reasons == (
        "2 of 4 pairs of workers that were asked do not reach each other: nothing from w0 arrives at w2, "
        "nothing from w2 arrives at w1",
    )
    (every,) = reach.judge(asked, Answers(set(), set())).reasons
    assert every.startswith("4 of 4 pairs")
    assert every.endswith("nothing from w1 arrives at w2, …")


def test_a_way_that_routers_take_for_forged_is_noticed() -> None:
    """As on a hardened host: neighbours are fine, opposite workers are not, as there and back are different ways."""

    def run() -> tuple[str, ...]:
        directory = Path(tempfile.mkdtemp(prefix="tb"))
        daemon = Daemon(RING, directory, "host")
        try:
            daemon.build(attach_pfifo)
            ends = {w.name: End(w.name, daemon.workers[w.name], w.address) for w in RING.workers}
            asked = reach.questions(RING)
            assert reach.judge(asked, reach.ask(asked, ends)).grade == "faithful"
            for number in range(4):
                with namespaces.inside(daemon.box.router_namespace(number) or 0):
                    namespaces.write_sysctl("net.ipv4.conf.all.rp_filter", "1")
            return reach.judge(asked, reach.ask(asked, ends)).reasons
        finally:
            daemon.close()
            shutil.rmtree(directory)

    (said,) = isolated(run)
    assert said.startswith("2 of 6 pairs")


@pytest.mark.netem
@pytest.mark.usefixtures("own_state")
def test_a_network_in_which_two_do_not_reach_each_other_is_invalid() -> None:
    """Though each of its links is fine, and all pairs of neighbours are."""

    def block(inner: Client) -> None:
        with inner.namespace("w1") as namespace:
            target = RING.workers[3].address
            request(Netlink(namespace), "route", "add", dst=f"{target}/32", type="blackhole")

    handle, _ = start(RING)
    try:
        assert not any(
            "reach each other" in reason for reason in calibrate(handle, RING, streams=False).verdict.reasons
        )
        handle.run(block)
        found = calibrate(handle, RING, streams=False).verdict
        assert found.grade == "invalid"
        said = "1 of 6 pairs of workers that were asked do not reach each other: nothing from w1 arrives at w3"
        assert said in found.reasons
        handle.call("set_partition", blocked={"w1": ["w3"]})  # now it is on purpose
        assert not any(
            "reach each other" in reason for reason in calibrate(handle, RING, streams=False).verdict.reasons
        )
    finally:
        handle.close()
