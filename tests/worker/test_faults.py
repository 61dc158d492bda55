"""Dead and frozen peers: the neighbours say who, when and what to do; nobody else is touched."""

import os
import signal
from pathlib import Path

import pytest
import torch

from testbed.errors import TrainingError
from testbed.worker.job import Job
from testbed.worker.trace import KINDS
from testbed.worker.transport import Neighbours, PeerLostError

from .workers import in_workers, neighbours_of


@pytest.mark.parametrize("threads", [False, True])
def test_a_killed_peer_is_noticed_at_once_and_breaks_only_its_own_edges(tmp_path, threads):
    """w1 – w2 – w3 share a channel, w0, w1 and w3 another. w2 dies: the others' channel goes on."""
    ends = {0: (), 1: (2,), 2: (1, 3), 3: (2,)}

    def work(transport, job: Job) -> None:
        doomed = transport.channel(10_000, [Neighbours(ends[job.rank], ends[job.rank])])
        others = tuple(p for p in (0, 1, 3) if p != job.rank) if job.rank != 2 else ()
        healthy = transport.channel(10_000, [Neighbours(others, others)])
        transport.connect()
        message = torch.zeros(10_000, dtype=torch.uint8)
        for number in range(10):
            transport._trace.step = number
            if job.rank == 2 and number == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            if ends[job.rank]:
                try:
                    doomed.send(message)
                    doomed.receive()
                except PeerLostError as error:
                    (tmp_path / f"error.{job.rank}").write_text(f"{error} | {error.peer} | {error.hint}")
                    break
        for _ in range(10):
            healthy.send(message)
            healthy.receive()
        (tmp_path / f"healthy.{job.rank}").touch()

    with pytest.raises(TrainingError, match="w2 was killed by SIGKILL"):
        in_workers(4, work, watch_every=int(threads))
    for rank in (1, 3):
        error = (tmp_path / f"error.{rank}").read_text()
        assert error.startswith(f"w{rank}: the connection to w2 broke in step ")  # and not: message_timeout
        assert "| 2 |" in error
        assert "w2 died or failed first" in error
    assert not (tmp_path / "error.0").exists()
    assert all((tmp_path / f"healthy.{rank}").exists() for rank in (0, 1, 3))


@pytest.mark.parametrize("threads", [False, True])
def test_a_frozen_peer_runs_into_the_deadline(threads):
    def work(transport, job: Job) -> None:
        peers = neighbours_of(job.rank, job.size)
        channel = transport.channel(1000, [Neighbours(peers, peers)])
        transport.connect()
        for number in range(5):
            transport._trace.step = number
            if job.rank == 1 and number == 2:
                os.kill(os.getpid(), signal.SIGSTOP)
            channel.send(torch.zeros(1000, dtype=torch.uint8))
            channel.receive()

    with pytest.raises(
        PeerLostError, match=r"w[02]: nothing from w1 in step 2 after \d+\.\d s \(message timeout 2 s\)"
    ) as caught:
        in_workers(4, work, message_timeout=2.0, watch_every=int(threads))
    assert "raise the scenario's patience" in (caught.value.hint or "")


def test_the_wait_in_vain_is_in_the_trace(tmp_path: Path):
    def work(transport, job: Job):
        channel = transport.channel(8, [Neighbours((1 - job.rank,), (1 - job.rank,))])
        transport.connect()
        if job.rank == 1:
            return None  # comes to the end and never sends
        channel.send(torch.zeros(8, dtype=torch.uint8))
        with pytest.raises(PeerLostError):
            channel.receive()
        return transport._trace.spans()

    spans, _ = in_workers(2, work, message_timeout=0.3)
    (fault,) = spans[spans["kind"] == KINDS.index("fault")]
    assert fault["peer"] == 1
    assert fault["end_ns"] - fault["start_ns"] >= 0.29e9  # Gloo's clock is not ours


def test_a_peer_that_never_comes():
    def work(transport, job: Job) -> str:
        if job.rank == 1:
            return ""
        transport.channel(8, [Neighbours((1,), (1,))])
        with pytest.raises(PeerLostError, match="w0: no connection to w1") as caught:
            transport.connect()
        return caught.value.hint or ""

    assert "is w1 running" in in_workers(2, work, message_timeout=0.5)[0]


def test_an_interface_that_does_not_exist():
    def work(transport, job: Job) -> None:
        transport.channel(8, [Neighbours((1 - job.rank,), (1 - job.rank,))])
        transport.connect()

    with pytest.raises(Exception, match=r"w[01]: cannot listen on interface 'nowhere0'"):
        in_workers(2, work, interface="nowhere0")


def test_all_reduce_names_the_step_when_somebody_is_missing():
    def work(transport, job: Job) -> None:
        transport.connect_all()
        transport._trace.step = 3
        if job.rank == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
        transport.all_reduce(torch.zeros(10))

    with pytest.raises(PeerLostError, match=r"w[01]: nothing from the other workers in step 3 after"):
        in_workers(3, work, message_timeout=1.0)
