"""Links are judged rightly while the machine, or TCP, does not get the most out of them."""

from __future__ import annotations

import pytest

from testbed.network import measure
from testbed.network.calibrate import calibrate
from testbed.network.handle import start

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
