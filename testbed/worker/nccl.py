"""The transport over NCCL: device tensors, one GPU per worker. Chosen with `backend: nccl`; needs CUDA.

NCCL knows no tags and runs what one worker starts in that order, so a receive cannot be posted a round ahead: it would
block the send behind it. A round is one group of sends and receives, started by `send`. Peers match each other's
messages by order, which holds because all workers run the same method.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from time import monotonic_ns, sleep
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributed as dist
from torch.distributed import P2POp, Work

from testbed.errors import MissingError, TrainingError
from testbed.methods.base import Channel
from testbed.worker.control import open_store
from testbed.worker.edges import lost
from testbed.worker.job import Job
from testbed.worker.trace import CODES, Trace
from testbed.worker.transport import ALL, Neighbours, Transport, by_target, ring_share

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_POLL = 20e-6  # seconds between looks at work under way


def environment(interface: str, worker: str) -> dict[str, str]:
    """Return what keeps NCCL on the emulated network (sockets only, no NVLink, shared memory or InfiniBand past it) and
    its bytes countable: rings of plain messages, as Gloo's all-reduce is; other protocols add flags of up to the same
    size."""
    return {
        "NCCL_SOCKET_IFNAME": f"={interface}",  # exactly this one, not those that begin like it
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_IB_DISABLE": "1",
        "NCCL_NET": "Socket",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_MNNVL_ENABLE": "0",
        "NCCL_COLLNET_ENABLE": "0",
        "NCCL_HOSTID": worker,  # every worker is a machine of its own
        "NCCL_ALGO": "Ring",
        "NCCL_PROTO": "Simple",
    }


def require_cuda(device: str) -> torch.device:
    """Return the device of a worker, or raise why there is none."""
    chosen = torch.device(device)
    if not torch.cuda.is_available() or not dist.is_nccl_available():
        raise MissingError(
            "backend nccl needs a CUDA build of torch and a visible GPU; this worker has none",
            hint="use backend: gloo, or give every worker a GPU",
        )
    if chosen.type != "cuda":
        raise MissingError(
            f"backend nccl sends device tensors, and this worker trains on {device}", hint="device: cuda"
        )
    return chosen


def refuse_shared(gpus: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a shared GPU: NCCL wants one per worker, and fails late and obscurely otherwise."""
    owners: dict[str, list[str]] = {}
    for name, gpu in zip(names, gpus, strict=True):
        owners.setdefault(gpu, []).append(name)
    for gpu, sharing in owners.items():
        if len(sharing) > 1:
            raise TrainingError(
                f"workers {', '.join(sharing)} share GPU {gpu}; NCCL needs one GPU per worker",
                hint="use backend: gloo on shared GPUs, or fewer workers",
            )


class NcclTransport(Transport):
    """One process group of all workers; channels are grouped sends and receives in it."""

    def __init__(self, job: Job, trace: Trace) -> None:
        self.rank = job.rank
        self.size = job.size
        self.sent: dict[int, int] = defaultdict(int)
        self.job = job
        self.trace = trace
        self._cold: list[NcclChannel] = []
        self.device = require_cuda(job.device)
        torch.cuda.set_device(self.device)
        os.environ.update(environment(job.interface, job.name_of(job.rank)))
        store = open_store(job.rendezvous, "nccl")
        store.set(f"gpu/{job.rank}", str(torch.cuda.get_device_properties(self.device).uuid))
        gpus = [store.get(f"gpu/{rank}").decode() for rank in range(job.size)]
        refuse_shared(gpus, [job.name_of(rank) for rank in range(job.size)])
        # device_id connects now rather than in the first step; the timeout is NCCL's own, ours fires before it
        patience = timedelta(seconds=2 * job.message_timeout)
        dist.init_process_group(
            "nccl", store=store, rank=job.rank, world_size=job.size, timeout=patience, device_id=self.device
        )

    def channel(self, nbytes: int, rounds: Sequence[Neighbours]) -> Channel:
        channel = NcclChannel(self, nbytes, rounds)
        self._cold.append(channel)
        return channel

    def connect(self) -> None:
        """Use every connection once: NCCL opens those of a collective or of a pair on first use."""
        self.connect_all()
        for channel in self._cold:
            channel.warm_up()
        self._cold.clear()

    def connect_all(self) -> None:
        dist.all_reduce(torch.zeros(1, device=self.device))
        torch.cuda.synchronize(self.device)

    def all_reduce(self, tensor: Tensor) -> None:
        share = ring_share(tensor.nbytes, self.size)
        start = monotonic_ns()
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None  # this worker is a member of the group
        self.wait(work, ALL, start)
        self.sent[ALL] += share
        self.trace.add(CODES["wait"], ALL, start, monotonic_ns(), tensor.nbytes, share)

    def process_group(self) -> ProcessGroup:
        group = dist.group.WORLD
        assert group is not None
        return group

    def leave(self) -> None:
        dist.destroy_process_group()

    def wait(self, work: Work, peer: int, since_ns: int) -> None:
        """Wait until the GPU is done: `work.wait` alone would only order the stream and record a wrong time."""
        while not work.is_completed():
            waited = (monotonic_ns() - since_ns) / 1e9
            if waited > self.job.message_timeout:
                self.trace.add(CODES["fault"], peer, since_ns, monotonic_ns())
                raise lost(self.job, peer, self.trace.step, waited)
            sleep(_POLL)
        work.wait()  # raises what went wrong, and orders the stream


class NcclChannel:
    """A channel of the contract in methods/base.py."""

    def __init__(self, transport: NcclTransport, nbytes: int, rounds: Sequence[Neighbours]) -> None:
        self.nbytes = nbytes
        self._transport = transport
        self._rounds = tuple(rounds)
        self._round = -1
        self._buffers: dict[int, Tensor] = {}
        self._padded: dict[int, Tensor] = {}
        self._works: list[Work] = []
        self._lengths: dict[int, int] = {}
        self._started = 0

    def warm_up(self) -> None:
        """Send one byte each way in every round of the cycle."""
        for neighbours in self._rounds:
            token = torch.zeros(1, dtype=torch.uint8, device=self._transport.device)
            operations = [P2POp(dist.isend, token, target) for target in neighbours.targets]
            operations += [P2POp(dist.irecv, torch.empty_like(token), source) for source in neighbours.sources]
            start = monotonic_ns()
            for work in dist.batch_isend_irecv(operations) if operations else []:
                self._transport.wait(work, ALL, start)

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        self._round += 1
        neighbours = self._rounds[self._round % len(self._rounds)]
        messages = by_target(message, neighbours.targets, self.nbytes)
        sends = [P2POp(dist.isend, self._full(one, target), target) for target, one in messages.items()]
        receives = [P2POp(dist.irecv, self._buffer(source), source) for source in neighbours.sources]
        self._started = monotonic_ns()
        self._works = dist.batch_isend_irecv(sends + receives) if sends or receives else []
        self._lengths = dict.fromkeys(messages, self.nbytes)
        for target in messages:
            self._transport.sent[target] += self.nbytes

    def receive(self) -> dict[int, Tensor]:
        start = monotonic_ns()
        sources = self._rounds[self._round % len(self._rounds)].sources
        for work in self._works:  # one for the whole group, or one each, depending on torch's version
            self._transport.wait(work, sources[0] if len(sources) == 1 else ALL, start)
        end = monotonic_ns()
        trace = self._transport.trace
        for target, length in self._lengths.items():
            trace.add(CODES["send"], target, self._started, end, length, length)
        for source in sources:
            trace.add(CODES["wait"], source, start, end, self.nbytes, self.nbytes)
            start = end  # the group completes at once: the time is booked on the first source
        return {source: self._buffers[source] for source in sources}

    @property
    def lost(self) -> Collection[int]:
        return ()  # NCCL's groups do not survive a member

    def _buffer(self, source: int) -> Tensor:
        if source not in self._buffers:
            self._buffers[source] = torch.empty(self.nbytes, dtype=torch.uint8, device=self._transport.device)
        return self._buffers[source]

    def _full(self, message: Tensor, target: int) -> Tensor:
        """Pad a message to full length: NCCL wants equal lengths at both ends (and it counts as such)."""
        if message.numel() == self.nbytes:
            return message
        if target not in self._padded:
            self._padded[target] = torch.zeros(self.nbytes, dtype=torch.uint8, device=message.device)
        self._padded[target][: message.numel()].copy_(message)
        return self._padded[target]
