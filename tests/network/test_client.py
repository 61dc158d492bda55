"""A ring of eight, up: packets, counters, live changes, timed changes, sharing, names."""

from __future__ import annotations

import os
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NetworkError
from testbed.link.netem import ideal_goodput
from testbed.network import measure, state
from testbed.network.client import Client, start
from testbed.plan.model import NetworkPlan

from .examples import command, ends, fastest, goodput, network

pytestmark = [pytest.mark.netem, pytest.mark.usefixtures("own_state")]

RATE = 20_000_000
RING = network("{topology: ring, link: {latency: 5ms, rate: 20mbit}}", workers=8, name="ring")
HOP = 2 * 0.005  # round trip over one link
NAMES = [worker.name for worker in RING.workers]


@pytest.fixture(scope="module")
def built(own_state: Path) -> Iterator[Client]:
    handle, _ = start(RING)
    try:
        yield handle
    finally:
        handle.close()


@pytest.fixture
def ring(built: Client) -> Iterator[Client]:
    """The ring as it was planned; what a test changes is changed back."""
    yield built
    built.call("stop_events")
    built.call("set_partition", blocked={})
    for link in RING.links:
        built.set_link(link.name, vars(link.ab), vars(link.ba))


def near(asked: float) -> Any:
    """A round trip as asked, with what a busy machine may add to the fastest of a few, and the box's own error."""
    return pytest.approx(asked + 0.002, abs=0.0035)


def test_every_pair_reaches_each_other_with_the_latency_of_its_path(ring: Client) -> None:
    pairs = list(permutations(NAMES, 2))
    rtt = {(path.source, path.target): path.rtt for path in RING.paths}
    found = dict(zip(pairs, fastest(ring, *pairs, count=2), strict=True))
    assert all(found.values())
    for (a, b), time_taken in found.items():
        asked = rtt.get((a, b)) or rtt[b, a]
        assert time_taken
        assert asked - 0.001 < time_taken < asked + 0.15  # 56 at once: how late they may be is the machine's affair
    assert fastest(ring, ("w0", "w1"), ("w0", "w4")) == [near(HOP), near(4 * HOP)]


def test_counters_move_by_what_was_sent(ring: Client) -> None:
    """Twenty packets of a thousand bytes from w0 over w1 to w2, and nothing anywhere else."""

    def send(inner: Client) -> None:
        with ends(inner, ["w0", "w2"]) as found:
            train = measure.udp_train(found["w0"], found["w2"], 5e6, 20, drain=0.2, mtu=1000)
            assert train.received == 20

    before = ring.counters()
    ring.run(send)
    after = ring.counters()
    moved = {
        way: [after["links"][way][i] - before["links"][way][i] for i in range(3)]
        for way in after["links"]
        if after["links"][way][:3] != before["links"][way][:3]
    }
    assert moved == {"w0>w1": [20 * 1014, 20, 0], "w1>w2": [20 * 1014, 20, 0]}
    assert len(after["links"]) == 16
    assert after["time"] > before["time"]
    assert after["box_seconds"].keys() == before["box_seconds"].keys() != set()
    assert all(after["box_seconds"][name] >= seconds for name, seconds in before["box_seconds"].items())
    sent, received = ({name: now[i] - before["ports"][name][i] for name, now in after["ports"].items()} for i in (3, 2))
    assert sent["w0"] >= 20 * 1014
    assert received["w2"] >= 20 * 1014
    assert sent["w4"] == received["w4"] == 0


def test_what_waits_in_a_queue_is_counted(ring: Client) -> None:
    ring.set_link("w0-w1", {"latency": 1.0}, {})
    stop = threading.Event()

    def look() -> list[int]:
        seen = []
        while not stop.is_set():
            seen.append(reader.counters()["links"]["w0>w1"][4])
        return seen

    reader = Client(ring.state)
    result: list[list[int]] = []
    thread = threading.Thread(target=lambda: result.append(look()))

    def send(inner: Client) -> None:
        with ends(inner, ["w0", "w1"]) as found:
            measure.udp_train(found["w0"], found["w1"], 5e6, 30, drain=0.3)

    thread.start()
    ring.run(send)
    stop.set()
    thread.join()
    reader.disconnect()
    assert max(result[0]) == 30


def test_a_link_changes_live_and_in_one_direction_only(ring: Client) -> None:
    ring.set_link("w0-w1", {"latency": 0.105}, {})
    assert fastest(ring, ("w0", "w1"), ("w1", "w2")) == [near(HOP + 0.1), near(HOP)]
    ring.set_link("w0-w1", {}, {"latency": 0.055})
    assert fastest(ring, ("w0", "w1")) == [near(HOP + 0.15)]
    shapes = ring.call("status")["links"]["w0-w1"]
    assert [shape["latency"] for shape in shapes] == [0.105, 0.055]
    assert [shape["rate"] for shape in shapes] == [RATE, RATE]


def test_jitter_is_a_standard_deviation(ring: Client) -> None:
    ring.set_link("w0-w1", {"latency": 0.02, "jitter": 0.01}, {})

    def ask(inner: Client) -> list[float]:
        with ends(inner, ["w0", "w1"]) as found:
            return measure.round_trips([(found["w0"], found["w1"])], 80, spin=False)[0]

    longest = 0.02 + 3**0.5 * 0.01 + 0.005  # drawn evenly, so there is one
    times = [time for time in ring.run(ask) if time < longest + 0.003]  # what is late is the machine's affair
    assert len(times) > 60
    assert statistics.pstdev(times) == pytest.approx(0.01, rel=0.25)


def test_changing_a_link_under_traffic_loses_nothing(ring: Client) -> None:
    def send(inner: Client) -> measure.Train:
        with ends(inner, ["w0", "w1"]) as found:
            return measure.udp_train(found["w0"], found["w1"], 5e6, 500, drain=0.5)

    stop = threading.Event()
    changer = Client(ring.state)

    def change() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            changer.set_link("w0-w1", {"latency": 0.005 + 0.001 * (number % 5), "rate": RATE + number}, {})

    thread = threading.Thread(target=change)
    thread.start()
    train = ring.run(send)
    stop.set()
    thread.join()
    changer.disconnect()
    assert train.received == 500


def test_a_change_that_cannot_be_is_refused_and_the_network_goes_on(ring: Client) -> None:
    with pytest.raises(NetworkError, match="there is no link w0-w5"):
        ring.set_link("w0-w5", {}, {})
    with pytest.raises(NetworkError, match="speed"):
        ring.set_link("w0-w1", {"speed": 1}, {})
    with pytest.raises(NetworkError, match="there is no worker w9"), ring.namespace("w9"):
        pass
    with pytest.raises(NetworkError, match="unknown request 'build'"):
        ring.call("build")
    with pytest.raises(NetworkError, match="argument"):
        ring.call("status", verbose=True)
    assert fastest(ring, ("w0", "w1")) == [near(HOP)]


def test_a_client_that_dies_or_talks_nonsense_does_not_end_the_network(ring: Client) -> None:
    path = str(ring.directory / "control")
    for said in (b"", b"\x00\xff", b"hello\n", b"[]\n", b"{}\n", b'{"op": 7}\n', b'{"op": "counters"}\n' * 3):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            client.sendall(said)  # and leave, with what is answered unread
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(path)
        client.sendall(b'{"op": "status"}\n')
        time.sleep(0.3)  # the answer is there, unread: closing resets the connection
    assert ring.call("status")["name"] == "ring"
    assert ring.state.alive()


def test_goodput_is_what_the_link_allows(ring: Client) -> None:
    (found,) = goodput(ring, ("w0", "w1"))
    assert 0.7 * RATE < found <= 1.02 * ideal_goodput(RATE)


def test_paths_share_the_links_they_have_in_common(ring: Client) -> None:
    """w0 to w2 and w1 to w2 both cross w1>w2; w4 to w5 crosses neither."""
    shared, other, apart = goodput(ring, ("w0", "w2"), ("w1", "w2"), ("w4", "w5"), window=2.0)
    assert 0.7 * RATE < shared + other <= 1.02 * ideal_goodput(RATE)
    assert min(shared, other) > 0.1 * (shared + other)
    assert apart > 0.7 * RATE
    assert apart <= 1.02 * ideal_goodput(RATE)


def test_an_asymmetric_link(ring: Client) -> None:
    ring.set_link("w4-w5", {"rate": RATE // 4}, {"rate": RATE})
    slow, fast = goodput(ring, ("w4", "w5"), ("w6", "w5"))
    (back,) = goodput(ring, ("w5", "w4"))
    assert 0.7 * RATE / 4 < slow <= 1.02 * ideal_goodput(RATE / 4)
    assert min(fast, back) > 0.7 * RATE


def test_loss_is_as_asked_and_in_its_direction_only(ring: Client) -> None:
    ring.set_link("w2-w3", {"loss": 0.2}, {})

    def send(inner: Client) -> list[measure.Train]:
        with ends(inner, ["w2", "w3"]) as found:
            ways = [("w2", "w3"), ("w3", "w2")]
            return [measure.udp_train(found[a], found[b], 10e6, 1000, drain=0.3) for a, b in ways]

    before = ring.counters()["links"]
    there, back = ring.run(send)
    after = ring.counters()["links"]
    assert there.loss == pytest.approx(0.2, abs=5 * (0.2 * 0.8 / 1000) ** 0.5)
    assert back.loss <= 0.01  # nothing, but on a machine that stands still for a while
    drops = [after[way][2] - before[way][2] for way in ("w2>w3", "w3>w2")]
    assert [train.sent - train.received for train in (there, back)] == drops  # none is lost where nobody counts


def test_a_link_that_is_down_lets_nothing_pass_and_is_up_again(ring: Client) -> None:
    ring.set_link("w0-w1", {"up": False}, {"up": False})
    assert fastest(ring, ("w0", "w1"), ("w1", "w2"), patience=0.3) == [None, near(HOP)]
    ring.set_link("w0-w1", {"up": True}, {"up": True})
    assert fastest(ring, ("w0", "w1")) == [near(HOP)]


def test_a_partition_stops_packets_between_groups_and_no_others(ring: Client) -> None:
    """w0 to w2 goes through w1's router: that goes on, although w1 itself is cut off from both."""
    ring.call("set_partition", blocked={"w0": ["w1"], "w2": ["w1"], "w1": ["w0", "w2"]})
    pairs = [("w0", "w1"), ("w1", "w2"), ("w0", "w2"), ("w1", "w3")]
    assert fastest(ring, *pairs, patience=0.3) == [None, None, near(2 * HOP), near(2 * HOP)]
    assert ring.call("status")["partition"] == {"w0": ["w1"], "w2": ["w1"], "w1": ["w0", "w2"]}
    ring.call("set_partition", blocked={"w0": ["w1"]})  # one direction
    assert fastest(ring, *pairs, patience=0.3) == [None, near(HOP), near(2 * HOP), near(2 * HOP)]
    ring.call("set_partition", blocked={})
    assert fastest(ring, *pairs) == [near(HOP), near(HOP), near(2 * HOP), near(2 * HOP)]
    with pytest.raises(NetworkError, match="there is no worker w9"):
        ring.call("set_partition", blocked={"w0": ["w9"]})


def test_timed_changes_happen_in_order_and_are_on_record(ring: Client) -> None:
    def to(latency: float) -> dict[str, Any]:
        return {"link": "w0-w1", "ab": {"latency": latency}, "ba": {}}

    changes = [
        (0.8, "set_link", to(0.205)),
        (0.4, "set_link", to(0.105)),
        (0.4, "set_partition", {"blocked": {"w3": ["w4"]}}),
        (60.0, "set_link", to(0.9)),
    ]
    ring.call("start_events", changes=changes)
    assert fastest(ring, ("w0", "w1"), count=1) == [near(HOP)]
    time.sleep(1.0)
    assert fastest(ring, ("w0", "w1"), ("w4", "w3"), patience=0.5) == [near(HOP + 0.2), None]
    assert ring.call("status")["changes_left"] == 1
    done = ring.call("stop_events")
    assert [(due, what, problem) for due, _, what, problem in done] == [
        (0.4, "w0-w1", ""),
        (0.4, "set_partition", ""),
        (0.8, "w0-w1", ""),
    ]
    assert all(late >= 0 for _, late, _, _ in done)
    assert ring.call("status")["changes_left"] == 0


def test_another_schedule_may_follow(ring: Client) -> None:
    ring.call("start_events", changes=[(30.0, "set_link", {"link": "w0-w1", "ab": {"latency": 1.0}, "ba": {}})])
    ring.call("update_events", changes=[(0.0, "set_link", {"link": "w0-w1", "ab": {"latency": 0.105}, "ba": {}})])
    assert fastest(ring, ("w0", "w1"))[-1] == near(HOP + 0.1)
    assert len(ring.call("stop_events")) == 1


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ((1.0, "set_link", {"link": "w0-w9", "ab": {}, "ba": {}}), "there is no link w0-w9"),
        ((1.0, "set_link", {"link": "w0-w1", "ab": {"speed": 1}, "ba": {}}), "speed"),
        ((1.0, "close", {}), "close cannot be a timed change"),
    ],
)
def test_a_timed_change_that_could_never_be_made_is_refused_at_once(ring: Client, change: Any, what: str) -> None:
    with pytest.raises(NetworkError, match=what):
        ring.call("start_events", changes=[change])


def test_a_timed_change_that_fails_is_on_record_and_the_others_go_on(ring: Client) -> None:
    wrong = (0.0, "set_partition", {"blocked": {"w0": ["nobody"]}})
    right = (0.0, "set_link", {"link": "w0-w1", "ab": {"latency": 0.105}, "ba": {}})
    ring.call("start_events", changes=[wrong, right])
    assert fastest(ring, ("w0", "w1"))[-1] == near(HOP + 0.1)
    problems = {what: problem for _, _, what, problem in ring.call("stop_events")}
    assert problems["w0-w1"] == ""
    assert "nobody" in problems["set_partition"]


def test_names_resolve_inside_a_worker(ring: Client) -> None:
    done = command("exec", "--name", "ring", "w0", "--", "getent", "hosts", "w5")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [RING.workers[5].address, "w5"]
    done = command("exec", "w0", "--", "ping", "-c1", "-W2", "w1")
    assert done.returncode == 0, done.stderr


def test_commands_in_a_worker_tell_how_they_ended(ring: Client) -> None:
    assert command("exec", "w0", "--", "sh", "-c", "exit 7").returncode == 7
    assert command("exec", "w0", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    missing = command("exec", "w0", "--", "no-such-command")
    assert missing.returncode == 127
    assert "no-such-command: No such file or directory" in missing.stderr
    assert "Traceback" not in missing.stderr
    late = command("exec", "w0", "--name", "ring", "--", "true")
    assert late.returncode == 2
    assert "--name goes before the worker" in late.stderr
    unknown = command("exec", "w99", "--", "true")
    assert unknown.returncode == 4
    assert "there is no worker w99" in unknown.stderr


def test_work_in_a_child_comes_back_with_its_result_or_its_error(
    ring: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    here = os.stat("/proc/self/ns/net").st_ino
    assert ring.run(lambda inner: (inner.state.name, os.getpid() != os.getppid())) == ("ring", True)

    def fail(_: Client) -> None:
        raise NetworkError("told to", hint="stop")

    with pytest.raises(NetworkError, match="told to"):
        ring.run(fail)
    with pytest.raises(NetworkError, match="ended without an answer"):
        ring.run(lambda _: 1 // 0)
    assert "ZeroDivisionError" in capfd.readouterr().err
    with pytest.raises(NetworkError, match="ended without an answer"):
        ring.run(lambda _: os._exit(3))
    assert os.stat("/proc/self/ns/net").st_ino == here


def test_a_second_network_of_the_same_name_is_refused_and_disturbs_nothing(ring: Client) -> None:
    with pytest.raises(NetworkError, match="ring is already up"):
        start(RING)
    assert fastest(ring, ("w0", "w1")) == [near(HOP)]


def test_two_networks_at_once_do_not_disturb_each_other(ring: Client) -> None:
    """The same addresses, the same names of workers, other links."""
    pair: NetworkPlan = network("{topology: chain, link: {latency: 50ms, rate: 5mbit}}", workers=2, name="pair")
    other, _ = start(pair)
    try:
        assert fastest(other, ("w0", "w1")) == [near(0.1)]
        assert fastest(ring, ("w0", "w1")) == [near(HOP)]
        before = ring.counters()["links"]
        (found,) = goodput(other, ("w0", "w1"))
        assert found <= 1.02 * ideal_goodput(5e6)
        assert ring.counters()["links"] == before
        assert {found.name for found in state.running()} == {"ring", "pair"}
        assert "several networks are up" in command("exec", "w0", "--", "true").stderr
        assert command("exec", "--name", "pair", "w0", "--", "true").returncode == 0
    finally:
        other.close()
    assert [found.name for found in state.running()] == ["ring"]
    assert fastest(ring, ("w0", "w1")) == [near(HOP)]


def test_what_is_recorded_of_a_network(ring: Client) -> None:
    status = ring.call("status")
    assert status["settings"]["net.ipv4.tcp_slow_start_after_idle"] == "0"
    assert status["settings"]["net.ipv4.tcp_congestion_control"]
    assert status["settings"]["box_priority"]
    if ring.state.box == "uml":
        assert status["settings"]["box_port_buffer"] >= 212_992
    assert status["gso_segments"] == dict.fromkeys(NAMES, 4 if ring.state.box == "uml" else 1)  # 8 links both ways
    assert ring.plan == RING
    assert ring.state.kernel == status["kernel"]
    shown = command("status")
    assert shown.returncode == 0, shown.stderr
    assert "ring" in shown.stdout
    assert "w0>w1" in shown.stdout
    assert "partition" not in shown.stdout
    ring.call("set_partition", blocked={"w3": ["w4", "w5"]})
    ring.call("start_events", changes=[(60.0, "set_partition", {"blocked": {}})])
    shown = command("status")
    assert "partition: w3 does not reach w4, w5" in shown.stdout
    assert "timed changes to come: 1" in shown.stdout
