"""As many workers as a laptop should stand."""

import torch

from testbed.worker.job import Job
from testbed.worker.transport import ALL, Neighbours

from .workers import in_workers, message_of, neighbours_of

N = 32


def test_32_workers_exchange_and_reduce():
    def exchange(transport, job: Job) -> tuple[bool, float, int]:
        peers = neighbours_of(job.rank, job.size)
        channel = transport.channel(10_000, [Neighbours(peers, peers)])
        transport.connect()
        channel.send(message_of(job.rank, 0, 10_000))
        received = channel.receive()
        right = all(torch.equal(received[p], message_of(p, 0, 10_000)) for p in peers)
        total = torch.full((1000,), float(job.rank))
        transport.connect_all()
        transport.all_reduce(total)
        return right, float(total.mean()), transport.sent[ALL]

    assert in_workers(N, exchange) == [(True, N * (N - 1) / 2, 2 * (N - 1) * 4000 // N)] * N
