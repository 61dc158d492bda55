"""A network's daemon among clients that are slow, many or hostile: the others are served, and the network stays."""

from __future__ import annotations

import json
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from testbed.errors import NetworkError
from testbed.network import connection
from testbed.network.agent import allow_descriptors
from testbed.network.client import Client, start
from testbed.network.server import MOST_CLIENTS, TOO_MANY
from testbed.network.wire import read_line, send_line

from .examples import network

pytestmark = [pytest.mark.netem, pytest.mark.beside, pytest.mark.usefixtures("own_state")]

PAIR = network("{topology: chain, link: {latency: 2ms, rate: 100mbit}}", workers=2, name="pair")
LINK = {"link": "w0-w1", "ab": {}, "ba": {}}


@pytest.fixture(scope="module")
def pair(own_state: Path) -> Iterator[Client]:
    handle, _ = start(PAIR)
    try:
        yield handle
    finally:
        handle.close()


@contextmanager
def client(pair: Client) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(60)
        peer.connect(str(pair.directory / "control"))
        yield peer


def others_are_served(pair: Client) -> bool:
    """One that is there, and one that comes."""
    other = Client(pair.state)
    try:
        return all(one.call("status")["name"] == "pair" for one in (pair, other))
    finally:
        other.disconnect()


def descriptors(pair: Client) -> int:
    pair.call("stop_events")  # when it answers, it has noticed who has left
    return len(os.listdir(f"/proc/{pair.state.daemon}/fd"))


def eventually(holds: Callable[[], bool]) -> bool:
    """It may take the daemon a moment; how long is the machine's affair."""
    deadline = time.monotonic() + 60
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


def test_half_a_line_holds_up_nobody(pair: Client) -> None:
    with client(pair) as slow:
        slow.sendall(b'{"op": "sta')
        assert others_are_served(pair)
        slow.sendall(b'tus"}\n{"op"')
        answer = read_line(slow)
        assert answer
        assert answer["result"]["name"] == "pair"


def test_requests_in_one_breath_are_answered_in_order(pair: Client) -> None:
    with client(pair) as eager:
        eager.sendall(b'{"op": "status"}\n{"op": "no"}\n{"op": "counters"}\n')
        with eager.makefile("rb") as answers:
            found = [json.loads(answers.readline()) for _ in range(3)]
    assert [[*answer] for answer in found] == [["result"], ["error"], ["result"]]
    assert "ports" in found[2]["result"]


def test_two_thousand_connections(pair: Client) -> None:
    assert allow_descriptors(2500) >= 2500
    before = descriptors(pair)
    with ExitStack() as stack:
        crowd = [stack.enter_context(client(pair)) for _ in range(2000)]
        assert others_are_served(pair)
        assert before < descriptors(pair) <= before + MOST_CLIENTS + 1
        assert read_line(crowd[0]) == TOO_MANY  # of those that never said anything, the first
        send_line(crowd[-1], {"op": "status"})
        assert "result" in (read_line(crowd[-1]) or {})
    assert eventually(lambda: descriptors(pair) == before)


def test_a_client_too_many_is_told_so_where_nobody_is_idle(pair: Client) -> None:
    with ExitStack() as stack:
        for _ in range(MOST_CLIENTS):
            try:
                one = Client(pair.state)
                stack.callback(one.disconnect)
                one.call("stop_events")
            except NetworkError as error:
                assert "too many clients" in str(error)  # noqa: PT017 - only the last ones
                break
        else:
            raise AssertionError("nobody was refused")
        assert pair.call("status")["name"] == "pair"
    assert eventually(lambda: descriptors(pair) < MOST_CLIENTS)
    assert others_are_served(pair)


def test_where_no_descriptor_is_left_the_network_stays(pair: Client) -> None:
    before = descriptors(pair)
    limits = resource.prlimit(pair.state.daemon, resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir(f"/proc/{pair.state.daemon}/fd")))
    resource.prlimit(pair.state.daemon, resource.RLIMIT_NOFILE, (highest + 5, limits[1]))
    try:
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(client(pair))
            assert others_are_served(pair)
    finally:
        resource.prlimit(pair.state.daemon, resource.RLIMIT_NOFILE, limits)
    assert eventually(lambda: descriptors(pair) == before)
    assert others_are_served(pair)


def test_descriptors_that_nobody_asked_for_do_not_stay(pair: Client) -> None:
    before = descriptors(pair)
    with client(pair) as giver:
        for _ in range(50):
            socket.send_fds(giver, [b'{"op": "stop_events"}\n'], [0] * 200)
            assert read_line(giver) == {"result": []}
        assert descriptors(pair) == before + 1
        socket.send_fds(giver, [b"{"], [0] * 200)
        assert others_are_served(pair)
        assert descriptors(pair) == before + 1
    assert eventually(lambda: descriptors(pair) == before)


def test_a_client_that_never_reads_holds_up_nobody_and_is_not_listened_to(pair: Client) -> None:
    before = descriptors(pair)
    with client(pair) as deaf:
        deaf.setblocking(False)
        sent = 0
        with suppress(BlockingIOError):
            while sent < 5000:
                deaf.sendall(b'{"op": "status"}\n')
                sent += 1
                assert pair.call("stop_events") == []
        assert 20 < sent < 5000
        assert others_are_served(pair)
    assert eventually(lambda: descriptors(pair) == before)


def test_an_answer_that_is_read_late_comes_with_its_descriptors(pair: Client) -> None:
    with client(pair) as late:
        asked = b'{"op": "status"}\n' * 300  # whose answers are more than the socket holds
        late.sendall(asked + b'{"op": "namespace", "worker": "w0"}\n')
        time.sleep(0.2)  # the daemon is waiting for us now
        received: list[int] = []
        data = b""
        while data.count(b"\n") < 301:
            more, fds, _, _ = socket.recv_fds(late, 1 << 16, 8)
            data += more
            received += fds
        assert len(received) == 1
        with pair.namespace("w0") as namespace:
            assert os.path.sameopenfile(received[0], namespace)
        os.close(received[0])


def test_a_huge_line_is_refused(pair: Client) -> None:
    with client(pair) as long_winded:
        chunk, sent = b" " * (1 << 20), 0
        with suppress(BrokenPipeError, ConnectionResetError):
            while sent <= 2 * connection.LONGEST_REQUEST:
                long_winded.sendall(chunk)
                sent += len(chunk)
        assert sent <= 2 * connection.LONGEST_REQUEST
        assert others_are_served(pair)


@pytest.mark.parametrize("said", [b"hello\n", b"\x00\xff\n", b"[]\n", b"\n" * 1000, b"[" * 100_000 + b"\n"])
def test_garbage_is_shown_the_door(pair: Client, said: bytes) -> None:
    with client(pair) as odd:
        odd.sendall(said)
        with suppress(ConnectionResetError):
            assert odd.recv(1) == b""
    assert others_are_served(pair)


WRONG: list[dict[str, Any]] = [
    {},
    {"op": 7},
    {"op": []},
    {"op": {"op": "status"}},
    {"op": "__init__"},
    {"op": "status", "self": 1},
    {"op": "namespace"},
    {"op": "namespace", "worker": None},
    {"op": "namespace", "worker": ["w0"]},
    {"op": "namespace", "worker": "\ud800"},
    {"op": "namespace", "worker": "w0" * 100_000},
    {"op": "\udcff"},
    {"op": "adopt", "worker": "w0", "pid": 2**62},
    {"op": "adopt", "worker": "w0", "pid": "1/../self"},
    {"op": "adopt", "worker": "w0", "pid": -1},
    {"op": "adopt", "worker": "w0", "pid": True},
    {"op": "set_link", "link": "w0-w1", "ab": None, "ba": {}},
    {"op": "set_link", "link": "w0-w1", "ab": {"latency": "5ms"}, "ba": {}},
    {"op": "set_link", "link": "w0-w1", "ab": {"latency": float("nan")}, "ba": {}},
    {"op": "set_link", "link": "w0-w1", "ab": {"latency": float("inf")}, "ba": {}},
    {"op": "set_link", "link": "w0-w1", "ab": {"latency": 1e9}, "ba": {}},
    {"op": "set_link", "link": "w0-w1", "ab": {"rate": -1}, "ba": {}},
    {"op": "set_link", "link": "w0-w1", "ab": {"up": 1}, "ba": {}},
    {"op": "set_link", "link": ["w0-w1"], "ab": {}, "ba": {}},
    {"op": "set_partition", "blocked": {"w0": "w1"}},
    {"op": "set_partition", "blocked": {"w0": [["w1"]]}},
    {"op": "set_partition", "blocked": ["w0"]},
    {"op": "set_partition", "blocked": {"w9": ["w0"]}},
    {"op": "set_partition", "blocked": {"w0": ["w9"]}},
    {"op": "start_events", "changes": 5},
    {"op": "start_events", "changes": [5]},
    {"op": "start_events", "changes": [["soon", "set_link", LINK]]},
    {"op": "start_events", "changes": [[float("nan"), "set_link", LINK]]},
    {"op": "start_events", "changes": [[1, "set_link", {}]]},
    {"op": "start_events", "changes": [[1, "set_link", LINK | {"ab": {"latency": []}}]]},
    {"op": "start_events", "changes": [[1, ["set_link"], LINK]]},
    {"op": "start_events", "changes": [[1, "set_partition", {"blocked": 1}]]},
]


@pytest.mark.parametrize("request_", WRONG, ids=lambda one: json.dumps(one)[:70])
def test_a_request_that_makes_no_sense_is_answered_with_an_error(pair: Client, request_: dict[str, Any]) -> None:
    before = pair.call("status")
    with client(pair) as odd:
        send_line(odd, request_)
        assert [*(read_line(odd) or {})] == ["error"]
        send_line(odd, {"op": "status"})
        after = (read_line(odd) or {})["result"]
    assert {key: after[key] for key in ("links", "partition", "changes_left")} == {
        key: before[key] for key in ("links", "partition", "changes_left")
    }


def test_timed_changes_that_no_link_can_follow_are_on_record(pair: Client) -> None:
    never = [1e15, "set_link", LINK]
    wrong = [0.0, "set_link", LINK | {"ab": {"latency": 1e9}}]
    pair.call("start_events", changes=[wrong, never])
    assert eventually(lambda: pair.call("status")["changes_left"] == 1)
    ((_, _, what, problem),) = pair.call("stop_events")
    assert what == "w0-w1"
    assert problem
    assert others_are_served(pair)


def test_who_has_said_all_is_answered_before_the_line_is_cut(pair: Client) -> None:
    """As `echo … | nc -U` does: it closes its half, and reads."""
    with client(pair) as brief:
        brief.sendall(b'{"op": "status"}\n{"op": "stop_events"}\n')
        brief.shutdown(socket.SHUT_WR)
        with brief.makefile("rb") as answers:
            found = [json.loads(line) for line in answers]
    assert [[*answer] for answer in found] == [["result"], ["result"]]


def test_clients_that_come_and_go_at_once(pair: Client) -> None:
    before = descriptors(pair)
    for number in range(3000):
        with client(pair) as hasty:
            if number % 3:
                hasty.sendall(b'{"op": "status"}\n' * (number % 7))
    assert others_are_served(pair)
    assert eventually(lambda: descriptors(pair) == before)


def test_many_changes_that_are_due_at_once_are_made_in_one_go(pair: Client) -> None:
    pair.call("start_events", changes=[[0.0, "set_link", LINK]] * 20_000)
    assert others_are_served(pair)
    assert eventually(lambda: pair.call("status")["changes_left"] == 0)
    assert len(pair.call("stop_events")) == 20_000
