"""Real processes, real sockets: the right bytes in the right round, whatever the timing."""

import random
import time

import pytest
import torch

from testbed.errors import TrainingError
from testbed.worker.edges import HEADER
from testbed.worker.job import Job
from testbed.worker.sockets import tcp_bytes_sent
from testbed.worker.trace import KINDS
from testbed.worker.transport import Neighbours

from .workers import in_workers, message_of, neighbours_of

ROUNDS = 25


def jitter(rng: random.Random, most: float = 0.003) -> None:
    if rng.random() < 0.5:
        time.sleep(rng.random() * most)


@pytest.mark.parametrize("threads", [False, True])
def test_contents_survive_random_sleeps_at_every_point(threads):
    def exchange(transport, job: Job) -> int:
        rng = random.Random(job.rank)
        peers = neighbours_of(job.rank, job.size)
        small = transport.channel(17, [Neighbours(peers, peers)])
        large = transport.channel(300_000, [Neighbours(peers, peers)])
        transport.connect()
        right = 0
        for number in range(ROUNDS):
            transport._trace.step = number
            jitter(rng)
            small.send(message_of(job.rank, number, 17, "small"))
            jitter(rng)
            large.send(message_of(job.rank, number, 300_000, "large"))
            jitter(rng)
            few, many = small.receive(), large.receive()
            jitter(rng)
            for peer in peers:
                right += torch.equal(few[peer], message_of(peer, number, 17, "small"))
                right += torch.equal(many[peer], message_of(peer, number, 300_000, "large"))
        return right

    assert in_workers(4, exchange, watch_every=int(threads)) == [4 * ROUNDS] * 4


def test_a_peer_that_runs_a_round_ahead_spoils_nothing():
    """While w0 dawdles, w1's message of the next round is already here: it lies in the other buffer."""

    def exchange(transport, job: Job) -> bool:
        other = 1 - job.rank
        channel = transport.channel(1000, [Neighbours((other,), (other,))])
        transport.connect()
        right = True
        for number in range(6):
            channel.send(message_of(job.rank, number, 1000))
            if job.rank == 0:
                time.sleep(0.05)  # w1 has received this round and sent the next
            received = channel.receive()[other]
            if job.rank == 0:
                time.sleep(0.05)
            right &= torch.equal(received, message_of(other, number, 1000))
        return right

    assert in_workers(2, exchange) == [True, True]


def test_directed_ring_passes_tokens_around():
    def pass_on(transport, job: Job) -> list[int]:
        n = job.size
        channel = transport.channel(8, [Neighbours(((job.rank + 1) % n,), ((job.rank - 1) % n,))])
        transport.connect()
        seen, token = [], torch.full((8,), job.rank, dtype=torch.uint8)
        for _ in range(n):
            channel.send(token)
            (received,) = channel.receive().values()
            token = received.clone()
            seen.append(int(token[0]))
        return seen

    seen = in_workers(5, pass_on)
    assert seen == [[(rank - hop - 1) % 5 for hop in range(5)] for rank in range(5)]


def test_neighbours_that_change_every_round():
    """A one-peer exponential graph of 8 as one channel: send to rank + 2^t, hear from rank − 2^t."""

    def exchange(transport, job: Job) -> bool:
        hops = [1, 2, 4]
        rounds = [Neighbours(((job.rank + h) % 8,), ((job.rank - h) % 8,)) for h in hops]
        channel = transport.channel(64, rounds)
        transport.connect()
        rng = random.Random(job.rank)
        right = True
        for number in range(12):
            jitter(rng)
            channel.send(message_of(job.rank, number, 64))
            source = (job.rank - hops[number % 3]) % 8
            received = channel.receive()
            right &= list(received) == [source] and torch.equal(received[source], message_of(source, number, 64))
        return right

    assert in_workers(8, exchange) == [True] * 8


def test_a_message_per_target_and_shorter_than_the_channel():
    def exchange(transport, job: Job) -> bool:
        peers = tuple(p for p in range(3) if p != job.rank)
        channel = transport.channel(100, [Neighbours(peers, peers)])
        transport.connect()
        right = True
        for number in range(5):
            length = 100 - 20 * number
            channel.send({p: message_of(10 * job.rank + p, number, length) for p in peers})
            for p, received in channel.receive().items():
                right &= torch.equal(received[:length], message_of(10 * p + job.rank, number, length))
        return right

    assert in_workers(3, exchange) == [True] * 3


def test_only_senders_and_only_receivers():
    def exchange(transport, job: Job) -> list[int]:
        """w0 tells w1 and w2; they do not answer on this channel."""
        neighbours = Neighbours((1, 2), ()) if job.rank == 0 else Neighbours((), (0,))
        channel = transport.channel(4, [neighbours])
        transport.connect()
        heard = []
        for number in range(5):
            channel.send(torch.full((4,), number, dtype=torch.uint8))
            heard += [int(message[0]) for message in channel.receive().values()]
        return heard

    assert in_workers(3, exchange) == [[], list(range(5)), list(range(5))]


def test_connects_only_to_the_peers_it_uses():
    def count(transport, job: Job) -> int:
        peers = neighbours_of(job.rank, job.size)
        channel = transport.channel(1, [Neighbours(peers, peers)])
        transport.connect()
        channel.send(torch.zeros(1, dtype=torch.uint8))
        channel.receive()
        return len(transport._edges._edges)

    assert in_workers(6, count) == [2] * 6


def test_bytes_are_counted_as_the_kernel_does():
    def exchange(transport, job: Job) -> tuple[dict[int, int], int]:
        peers = neighbours_of(job.rank, job.size)
        channel = transport.channel(50_000, [Neighbours(peers, peers)])
        transport.connect()
        channel.send(torch.zeros(1, dtype=torch.uint8))  # the first round's receives were posted by connect
        channel.receive()
        transport.sent.clear()
        before = tcp_bytes_sent()
        for number in range(10):
            channel.send(message_of(job.rank, number, 50_000 if number % 2 else 20_000))
            channel.receive()
        return dict(transport.sent), tcp_bytes_sent() - before

    for rank, (sent, tcp) in enumerate(in_workers(4, exchange)):
        assert sent == dict.fromkeys(neighbours_of(rank, 4), 5 * 70_000)
        notices = 10 * 2 * (HEADER + HEADER // 2)  # before each message, and for each receive that was posted
        assert tcp == sum(sent.values()) + notices


def test_spans_of_an_exchange_carry_peer_and_bytes():
    def exchange(transport, job: Job):
        peers = neighbours_of(job.rank, job.size)
        channel = transport.channel(1000, [Neighbours(peers, peers)])
        transport.connect()
        transport._trace.step = 7
        channel.send(torch.zeros(1000, dtype=torch.uint8))
        for arrival in channel._arrivals.values():
            assert arrival.done.wait(30)  # the worker computes, say, while messages come in
        channel.receive()
        return transport._trace.spans()

    for rank, spans in enumerate(in_workers(3, exchange, watch_every=1)):
        assert set(spans["step"]) == {7}
        for kind in ("send", "wait", "receive"):
            chosen = spans[spans["kind"] == KINDS.index(kind)]
            assert sorted(chosen["peer"]) == list(neighbours_of(rank, 3))
            assert set(chosen["bytes_logical"]) == {1000}
            assert (chosen["end_ns"] >= chosen["start_ns"]).all()
        arrived = spans[spans["kind"] == KINDS.index("receive")]["end_ns"].max()
        stood = spans[spans["kind"] == KINDS.index("wait")]["start_ns"].min()
        assert arrived <= stood, "the threads saw the messages come in before the worker asked for them"


def test_wrong_use_is_refused_before_it_can_hurt_a_peer():
    def misuse(transport, job: Job) -> list[str]:
        other = 1 - job.rank
        channel = transport.channel(8, [Neighbours((other,), (other,))])
        transport.connect()
        errors = []
        for call in (
            lambda: channel.receive(),
            lambda: channel.send(torch.zeros(9, dtype=torch.uint8)),
            lambda: channel.send(torch.zeros(2)),
            lambda: channel.send({5: torch.zeros(8, dtype=torch.uint8)}),
        ):
            try:
                call()
            except TrainingError as error:
                errors.append(str(error))
        channel.send(torch.full((8,), job.rank, dtype=torch.uint8))
        try:
            channel.send(torch.zeros(8, dtype=torch.uint8))
        except TrainingError as error:
            errors.append(str(error))
        assert int(channel.receive()[other][0]) == other, "the channel still works"
        return errors

    said = ("before the round was sent", "9 bytes", "float32", "workers [5]", "before the last round was received")
    for errors in in_workers(2, misuse):
        assert [word in error for word, error in zip(said, errors, strict=True)] == [True] * 5
