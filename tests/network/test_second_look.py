"""Links are judged rightly while the machine, or TCP, does not get the most out of them."""

from __future__ import annotations

import time

import pytest

from testbed.network import measure
from testbed.network.calibrate import calibrate
from testbed.network.client import start
from testbed.report.links import link_rows

from .examples import network

pytestmark = [pytest.mark.netem, pytest.mark.usefixtures("own_state")]


def test_what_tcp_does_not_get_out_of_a_good_link_is_not_held_against_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "tcp_goodput", lambda pairs, *_: [5e6] * len(pairs))
    plan = network("{topology: chain, link: {latency: 1ms, rate: 10mbit}}", workers=2, name="pair")
    handle, _ = start(plan)
    try:
        (probe,) = calibrate(handle, plan).probes
        assert [way.goodput for way in (probe.there, probe.back)] == pytest.approx([9.56e6] * 2, rel=0.1)
    finally:
        handle.close()


def test_a_sender_that_is_too_slow_makes_a_good_link_suspect_and_not_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where neither TCP nor packets one by one fill the link."""
    real = measure._Wagons.send_if_due

    def held_up(self: measure._Wagons) -> None:
        time.sleep(0.003)
        real(self)

    monkeypatch.setattr(measure._Wagons, "send_if_due", held_up)
    monkeypatch.setattr("testbed.network.calibrate.SECOND_LOOKS", 1)
    monkeypatch.setattr(measure, "tcp_goodput", lambda pairs, *_: [2e6] * len(pairs))
    plan = network("{topology: chain, link: {latency: 1ms, rate: 10mbit}}", workers=2, name="busy")
    handle, _ = start(plan)
    try:
        found = calibrate(handle, plan)
    finally:
        handle.close()
    (probe,) = found.probes
    assert [(way.goodput, way.too_busy) for way in (probe.there, probe.back)] == [(None, True)] * 2
    assert found.unmeasured == 0
    said = [reason for reason in found.verdict.reasons if "Mbit/s" in reason or "measured" in reason]
    assert said == [
        f"{way}: could not be measured: the sender was too slow, is the machine busy?" for way in ("w0>w1", "w1>w0")
    ]
    assert link_rows(found.probes, plan.mtu)[1][0][2:] == ("9.564 / could not be measured",) * 2
