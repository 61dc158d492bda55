"""Sixty-four workers in a torus: every pair reaches each other, and every counter is right."""

from __future__ import annotations

import os
import selectors
import socket
import time
from collections import Counter
from itertools import pairwise

import pytest

from testbed.network import namespaces
from testbed.network.client import Client, start

from .examples import ends, network

pytestmark = [pytest.mark.netem, pytest.mark.slow, pytest.mark.usefixtures("own_state")]

TORUS = network("{topology: {torus: 8x8}, link: {latency: 1ms, rate: 100mbit}}", name="torus")
ECHO = b"0123456789abcdef"
WIRE = len(ECHO) + 8 + 20 + 14
PORT = 7777
PATIENCE = 20.0


def ping_all(handle: Client) -> tuple[set[tuple[str, str]], int]:
    """Every ordered pair once, in 63 rounds in which everybody asks one other; the pairs that were answered.

    One socket per worker asks and answers, so that 4032 pings need 64 sockets.
    """
    with ends(handle) as found:
        names = list(found)
        address = {name: found[name].address for name in names}
        name_of = {one: name for name, one in address.items()}
        sockets: dict[str, socket.socket] = {}
        selector = selectors.DefaultSelector()
        for name in names:
            with namespaces.inside(found[name].namespace):
                sockets[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            sockets[name].bind((address[name], PORT))
            selector.register(sockets[name], selectors.EVENT_READ, name)
        answered: set[tuple[str, str]] = set()
        sent = 0
        for step in range(1, len(names)):
            waiting = {(name, names[(number + step) % len(names)]) for number, name in enumerate(names)}
            for a, b in waiting:
                sockets[a].sendto(b"?" + ECHO[1:], (address[b], PORT))
                sent += 1
            deadline = time.monotonic() + PATIENCE
            while waiting and time.monotonic() < deadline:
                for key, _ in selector.select(0.1):
                    data, (other, _port) = sockets[key.data].recvfrom(64)
                    if data[:1] == b"?":
                        sockets[key.data].sendto(ECHO, (other, PORT))
                    else:
                        waiting.discard((key.data, name_of[other]))
                        answered.add((key.data, name_of[other]))
        for one in sockets.values():
            one.close()
        return answered, sent


def test_every_pair_of_sixty_four_and_what_the_links_counted() -> None:
    handle, _ = start(TORUS)
    try:
        before = handle.counters()
        answered, sent = handle.run(ping_all)
        after = handle.counters()
        assert (len(answered), sent) == (64 * 63, 64 * 63)

        # Each path's question and answer, link by link, are what the links counted: nothing less, and nothing else.
        expected: Counter[str] = Counter()
        for path in TORUS.paths:
            for way in (path.hops, path.back):
                for a, b in pairwise(way):
                    expected[f"{a}>{b}"] += 2  # a question and an answer go each way, as both ask
        moved = {way: after["links"][way][1] - before["links"][way][1] for way in after["links"]}
        assert moved == {way: expected[way] for way in moved}
        assert len(moved) == 256
        assert all(after["links"][way][0] - before["links"][way][0] == WIRE * expected[way] for way in moved)
        assert all(numbers[2] == 0 for numbers in after["links"].values())
        assert all(after["ports"][f"w{i}"][1] - before["ports"][f"w{i}"][1] >= 2 * 63 for i in range(64))

        looks = [handle.counters() for _ in range(10)]  # as a run does, each second and more often
        assert all(one["links"] == after["links"] for one in looks)
        assert sorted({one["time"] for one in looks}) == [one["time"] for one in looks]
    finally:
        handle.close()
    assert not os.path.exists(handle.directory)
