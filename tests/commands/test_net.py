"""`testbed net up`: what is wrong is said before anything starts; events and traces begin once it is measured."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from network.examples import command, fastest

from testbed.network import state
from testbed.network.client import Client

pytestmark = pytest.mark.usefixtures("own_state")

PAIR = "name: pair\nworkers: 2\nnetwork:\n  topology: chain\n  link: {latency: 2ms, rate: 100mbit}\n"


def scenario(folder: Path, network: str = "") -> str:
    file = folder / "pair.yaml"
    file.write_text(f"{PAIR}{network}methods: [allreduce]\n")
    return str(file)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("time,rate\n0s,1mbit\n1s,fast\n", "trace.csv:3: rate: 'fast' is not a rate"),
        ("", "trace.csv:1: no rows"),
        (None, "pair.yaml:6: network.links.0.trace: no such file"),
    ],
)
def test_a_bad_trace_is_said_with_its_line_and_nothing_starts(
    content: str | None, what: str, tmp_path: Path, own_state: Path
) -> None:
    if content is not None:
        (tmp_path / "trace.csv").write_text(content)
    done = command("net", "up", scenario(tmp_path, "  links: [{between: [w0, w1], trace: trace.csv}]\n"))
    assert done.returncode == 2
    assert what in done.stderr
    assert "Traceback" not in done.stderr
    assert list(own_state.iterdir()) == []


@pytest.mark.parametrize("name", ["../up", "/tmp/x", "A", ""])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path, own_state: Path) -> None:
    done = command("net", "up", scenario(tmp_path), "--name", name)
    assert done.returncode in (3, 4)  # 3: no network can be emulated here at all
    assert "Traceback" not in done.stderr
    assert list(own_state.iterdir()) == []


@pytest.mark.netem
def test_events_and_traces_begin_when_the_network_is_up(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("time,latency\n0s,20ms\n1s,100ms\n")
    network = (
        "  links: [{from: w0, to: w1, trace: trace.csv}]\n"
        "  events:\n"
        "    - {at: 0s, link: [w0, w1], loss: 5%, for: 500ms}\n"
        "    - {at: 10s, flap: [w0, w1], until: 60s}\n"
        "    - {at: 1s, kill: w1}\n"
        "    - {at: step 20, down: [w0, w1]}\n"
    )
    up = command("net", "up", scenario(tmp_path, network), "--no-calibrate")
    try:
        assert up.returncode == 0, up.stderr
        assert "15 timed changes scheduled, counted from now; the last after 61 s" in up.stdout
        assert "only while training: kill, step 20" in up.stderr
        time.sleep(1.5)
        handle = Client(state.pick("pair"))
        (rtt,) = fastest(handle, ("w0", "w1"))
        assert rtt
        assert 0.1 < rtt < 0.15
        shapes = handle.call("status")["links"]["w0-w1"]
        assert [(shape["latency"], shape["loss"]) for shape in shapes] == [(0.1, 0.0), (0.002, 0.0)]
        assert handle.call("status")["changes_left"] == 12
    finally:
        assert command("down", "--all").returncode == 0
