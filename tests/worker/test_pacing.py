"""Pacing of real sockets: that the right ones are told, that nothing else changes."""

from __future__ import annotations

import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from running import Place, assert_ran, losses

from testbed.bench.transport import emulated
from testbed.worker.control import FileControl
from testbed.worker.forked import run_forked
from testbed.worker.gloo import GlooTransport
from testbed.worker.pacing import Pacing
from testbed.worker.sockets import Connection, address_of, connections, counters, limit_rate, limited_rate
from testbed.worker.trace import Trace
from testbed.worker.transport import Neighbours

from .workers import in_workers, make_job, message_of, neighbours_of

LONG = 300_000  # bytes
ROUNDS = 8


@contextmanager
def connected(address: str = "127.0.0.1") -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server((address, 0)) as server:
        here = socket.create_connection(server.getsockname())
        there, _ = server.accept()
        with here, there:
            yield here, there


def connection_of(one: socket.socket) -> Connection:
    return next(found for found in connections() if found.fd == one.fileno())


def test_a_rate_is_set_on_one_connection_alone():
    with connected() as (here, there):
        connection = connection_of(here)
        assert (connection.here, connection.there) == (here.getsockname(), here.getpeername())
        assert limited_rate(connection) is None
        assert limit_rate(connection, 1_234_567.4)
        assert limited_rate(connection) == 1_234_567
        assert limited_rate(connection_of(there)) is None
        assert limit_rate(connection, None)
        assert limited_rate(connection) is None


def test_whoever_closes_a_connection_ends_it():
    """It is known by its number: nobody else holds it open, and who has the number next is not taken for it."""
    with connected() as (here, there), connected() as (other, _):
        connection = connection_of(here)
        assert counters(connection) is not None
        os.dup2(other.fileno(), here.fileno())
        assert there.recv(1) == b"", "the other end hears of it"
        assert counters(connection) is None
        assert not limit_rate(connection, 1e6)
        assert limited_rate(connection_of(other)) is None


def test_edges_are_found_by_their_peers_addresses():
    with connected("127.0.0.2") as (two, _), connected("127.0.0.3") as (three, _):
        opened = [connection_of(two), connection_of(three)]
        pacing = Pacing(rank=0)
        pacing.adopt({2: "127.0.0.2", 3: "127.0.0.3", 4: "127.0.0.4"}, opened)
        assert pacing.rates == {2: None, 3: None}
        pacing.adopt({5: "127.0.0.2", 6: "127.0.0.2"}, opened)
        assert pacing.rates == {2: None, 3: None}, "two peers on one address cannot be told apart"
        two.close()
        pacing.sending(2, LONG, step=0)
        assert pacing.rates == {3: None}, "closed"


def test_workers_that_share_an_address_are_left_alone():
    def exchange(transport: GlooTransport, job: Any) -> Any:
        peers = neighbours_of(job.rank, job.size)
        channel = transport.channel(LONG, [Neighbours(peers, peers)])
        for _ in range(3):
            channel.send(torch.zeros(LONG, dtype=torch.uint8))
            channel.receive()
        return transport.paced, [limited_rate(one) for one in connections()]

    for paced, limits in in_workers(3, exchange):
        assert paced == {}
        assert set(limits) == {None}


def _rounds(enter: Any, job: Any) -> dict[str, Any]:
    """Some rounds in a worker, with the stock group beside; the limits of both, by the peer's address."""
    enter(job.rank)
    torch.set_num_threads(1)
    trace = Trace(job.rank)
    transport, peers = GlooTransport(job, trace), neighbours_of(job.rank, job.size)
    transport.connect_all()
    stock = connections()
    channel = transport.channel(LONG, [Neighbours(peers, peers)])
    right = True
    for number in range(ROUNDS):
        trace.step = number
        channel.send(message_of(job.rank, number, LONG))
        received = channel.receive()
        right &= all(torch.equal(received[peer], message_of(peer, number, LONG)) for peer in peers)
    found = {
        "right": right,
        "address": address_of(job.interface),
        "paced": transport.paced,
        "stock": [limited_rate(one) for one in stock],
        "edges": {one.there[0]: limited_rate(one) for one in connections() - stock},
    }
    FileControl(job.rendezvous, job.size, 60).meet("end")
    return found


@pytest.fixture
def short_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Never where networks of a user are, and in a short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="tb") as folder:
        monkeypatch.setenv("TESTBED_STATE", folder)
        yield


@pytest.mark.netem
@pytest.mark.usefixtures("short_state")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pacing", ["auto", "off"])
def test_the_right_sockets_are_paced_on_an_emulated_network(pacing: str, tmp_path: Path):
    with emulated("1ms", "20mbit", congestion="reno") as where:
        job = make_job(4, tmp_path, interface="eth0", pacing=pacing)
        found = run_forked([partial(_rounds, where.enter, job.for_rank(rank)) for rank in range(4)])
    addresses = [worker["address"] for worker in found]
    for rank, worker in enumerate(found):
        assert worker["right"]
        assert set(worker["stock"]) == {None}, "what DDP users get is not touched"
        assert set(worker["edges"]) == {addresses[peer] for peer in neighbours_of(rank, 4)}
        if pacing == "off":
            assert worker["paced"] == {}
            assert set(worker["edges"].values()) == {None}
            continue
        assert sorted(worker["paced"]) == sorted(neighbours_of(rank, 4))
        for peer, rate in worker["paced"].items():
            limit = worker["edges"][addresses[peer]]
            assert rate == pytest.approx(limit, rel=0.5), "found, or tried above it"
            assert 0.02 * 2.5e6 < limit < 2 * 2.5e6, "in the order of the link's rate, on however busy a machine"


@pytest.mark.netem
@pytest.mark.timeout(600)
def test_losses_are_the_same_with_and_without(tmp_path: Path):
    scenario = """
name: paced
workers: 4
network: {link: {latency: 1ms, rate: 20mbit}, congestion: reno}
task: {data: digits, model: {mlp: {hidden: [256, 128]}}, batch: 16}
training: {steps: 12, lr: 0.05, eval_every: 6}
methods: [dpsgd, ring, {choco: {compressor: {topk: 30%}, gamma: 0.3}}]
sweep: {transport.pacing: [auto, off]}
"""
    place = Place(tmp_path)
    (tmp_path / "paced.yaml").write_text(scenario)
    assert_ran(place.run("up", "paced.yaml", "--out", "run", "--no-calibrate"))
    cells = {cell.name: cell for cell in (tmp_path / "run" / "cells").iterdir()}
    assert len(cells) == 6
    for name, cell in cells.items():
        pacing = json.loads((cell / "result.json").read_text())["pacing"]
        if name.startswith("v0"):
            assert losses(cell) == losses(cells[name.replace("v0", "v1", 1)])
            assert pacing["edges"] == 8
        else:
            assert pacing is None
    paced = json.loads((cells["v0-dpsgd-r0"] / "result.json").read_text())["pacing"]
    assert paced["paced"] == 1.0
    assert 0 < paced["least"] <= paced["median"] <= paced["most"]
    assert place.left_behind() == []
