"""The bench measures what it says."""

import torch

from testbed.bench import transport
from testbed.bench.sockets import SocketRing, address_of
from testbed.worker.control import open_store

from .workers import in_workers, message_of, neighbours_of


def test_every_figure_has_its_reference():
    entered = []
    rows = transport.measure(transport.Where(enter=entered.append, rounds=4, repeats=1))
    assert not entered, "workers enter, not the one who starts them"
    assert all(row.value > 0 for row in rows)
    found = {(row.metric, row.reference) for row in rows}
    for size in ("10 kB", "100 kB", "1 MB"):
        for reference in ("irecv, isend", "isend, recv", "plain sockets (floor)"):
            assert (f"exchange with 2 neighbours, {size}", reference) in found
    assert ("all-reduce of 4 MB, our ring", "stock") in found
    assert rows[-1].metric.startswith("trace, 20 spans")


def test_plain_sockets_carry_the_messages():
    def exchange(_, job):
        peers = neighbours_of(job.rank, job.size)
        sockets = SocketRing(job, peers, open_store(job.rendezvous, "sockets"))
        right = True
        for number in range(5):
            buffers = {peer: torch.empty(200_000, dtype=torch.uint8) for peer in peers}
            sockets.exchange(message_of(job.rank, number, 200_000), buffers)
            right &= all(torch.equal(buffers[peer], message_of(peer, number, 200_000)) for peer in peers)
        return right

    assert in_workers(4, exchange) == [True] * 4


def test_address_of_loopback():
    assert address_of("lo") == "127.0.0.1"
