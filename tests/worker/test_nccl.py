"""NCCL cannot run without GPUs; everything up to that edge can."""

import pytest
import torch
import torch.distributed as dist

from testbed.errors import MissingError, TrainingError
from testbed.worker import nccl
from testbed.worker.control import FileControl
from testbed.worker.loop import open_transport
from testbed.worker.nccl import NcclChannel
from testbed.worker.trace import Trace
from testbed.worker.transport import Neighbours

from .workers import in_workers, make_job, message_of, neighbours_of

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA: nothing is missing")


@without_cuda
def test_says_what_is_missing(tmp_path):
    job = make_job(2, tmp_path, backend="nccl", device="cuda")
    with pytest.raises(MissingError, match="nccl needs a CUDA build of torch and a visible GPU") as caught:
        open_transport(job, Trace(0))
    assert "backend: gloo" in (caught.value.hint or "")


def test_refuses_a_shared_gpu():
    nccl.refuse_shared(["GPU-a", "GPU-b"], ["w0", "w1"])
    with pytest.raises(TrainingError, match="workers w0, w2 share GPU GPU-a"):
        nccl.refuse_shared(["GPU-a", "GPU-b", "GPU-a"], ["w0", "w1", "w2"])


def test_stays_on_the_emulated_network():
    variables = nccl.environment("eth0", "w1")
    assert variables["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert {variables[name] for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE")} == {"1"}


def test_rounds_are_grouped_and_padded():
    """The channel itself, over a Gloo group, which understands the same grouped calls on CPU tensors."""

    class OverGloo:
        device = torch.device("cpu")

        def __init__(self, rank: int) -> None:
            self.trace = Trace(rank)
            self.sent = dict.fromkeys(range(4), 0)

        def wait(self, work, peer, since_ns):
            work.wait()

    def exchange(transport, job):
        transport.process_group()
        there = OverGloo(job.rank)
        peers = neighbours_of(job.rank, job.size)
        channel = NcclChannel(there, 100, [Neighbours(peers, peers)])
        channel.warm_up()
        right = True
        for number, length in enumerate((100, 60, 100)):
            channel.send(message_of(job.rank, number, length))
            for peer, received in channel.receive().items():
                right &= received.numel() == 100
                right &= torch.equal(received[:length], message_of(peer, number, length))
        FileControl(job.rendezvous, job.size, 60).meet("exchanged")
        assert dist.is_initialized()
        return right, {peer: count for peer, count in there.sent.items() if count}

    for rank, (right, sent) in enumerate(in_workers(4, exchange)):
        assert right
        assert sent == dict.fromkeys(neighbours_of(rank, 4), 300), "a padded message counts in full"
