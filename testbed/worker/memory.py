"""Workers as threads of one process and messages as copies: the channels' contract without sockets or forks.

For tests of methods and for oracles. Stricter than the real transports: it notices a message that its sender changes
too early, and overwrites received messages as soon as the contract allows it.
"""

from __future__ import annotations

import tempfile
import threading
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from testbed.errors import TrainingError
from testbed.methods.base import Channel, Method
from testbed.tasks.base import Task
from testbed.topology.gossip import Gossip
from testbed.worker.job import Job, Training, graph_of
from testbed.worker.loop import prepare, train
from testbed.worker.result import JobResult
from testbed.worker.trace import CODES, Trace
from testbed.worker.transport import ALL, Control, Neighbours, Transport, by_target, ring_share

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

SPOILED = 0xA5


class _StoppedError(TrainingError):
    """Another worker failed; its error is the one to show."""


class Switchboard(Control):
    """The threads' shared state: mailboxes, meetings, and whether one has failed."""

    def __init__(self, size: int, message_timeout: float) -> None:
        self.size = size
        self._message_timeout = message_timeout
        self._changed = threading.Condition()
        self._mail: defaultdict[tuple[int, int, int], deque[Tensor]] = defaultdict(deque)
        self._came: defaultdict[str, int] = defaultdict(int)
        self._said: dict[tuple[str, int], str] = {}
        self._failed = False

    def put(self, source: int, target: int, channel: int, message: Tensor) -> None:
        with self._changed:
            self._mail[source, target, channel].append(message)
            self._changed.notify_all()

    def take(self, source: int, target: int, channel: int, step: int) -> Tensor:
        mail = self._mail[source, target, channel]
        self._until(lambda: bool(mail), f"w{target}: nothing from w{source} in step {step}", self._message_timeout)
        return mail.popleft()

    def meet(self, name: str) -> int:
        with self._changed:
            self._came[name] += 1
            self._changed.notify_all()
        # the others may be some rounds behind
        self._until(
            lambda: self._came[name] >= self.size, f"not all workers came to '{name}'", 10 * self._message_timeout
        )
        return monotonic_ns()

    def share(self, name: str, rank: int, text: str) -> Sequence[str]:
        self._said[name, rank] = text
        self.meet(name)
        return [self._said[name, one] for one in range(self.size)]

    def present(self, name: str) -> Sequence[int]:
        return range(self.size)

    def fail(self) -> None:
        with self._changed:
            self._failed = True
            self._changed.notify_all()

    def _until(self, condition: Callable[[], bool], otherwise: str, patience: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: condition() or self._failed, patience)
            if condition():
                return
            if self._failed:
                raise _StoppedError(otherwise)
        raise TrainingError(f"{otherwise} after {patience:g} s", hint="the methods' rounds do not match")


class MemoryTransport(Transport):
    """One thread's access to the switchboard."""

    def __init__(self, rank: int, board: Switchboard, trace: Trace) -> None:
        self.rank = rank
        self.size = board.size
        self.sent: dict[int, int] = defaultdict(int)
        self.board = board
        self.trace = trace
        self._numbers: defaultdict[tuple[str, int], int] = defaultdict(int)

    def channel(self, nbytes: int, rounds: Sequence[Neighbours]) -> Channel:
        numbers: dict[tuple[str, int], int] = {}
        ends = {("to", p) for r in rounds for p in r.targets} | {("from", p) for r in rounds for p in r.sources}
        for end in ends:
            numbers[end] = self._numbers[end]
            self._numbers[end] += 1
        return MemoryChannel(self, nbytes, rounds, numbers)

    def connect(self) -> None:
        """Nothing to do."""

    def connect_all(self) -> None:
        """Nothing to do."""

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over all workers; each adds all parts in rank order, so all get the same bits."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        own = tensor.clone()
        for rank in others:
            self.board.put(self.rank, rank, ALL, own)
        parts = {rank: self.board.take(rank, self.rank, ALL, self.trace.step) for rank in others} | {self.rank: own}
        tensor.zero_()
        for rank in range(self.size):
            tensor += parts[rank]
        self.sent[ALL] += ring_share(tensor.nbytes, self.size)

    def process_group(self) -> ProcessGroup:
        raise TrainingError("threads have no process group", hint="use train_local for methods that need one (ddp)")

    def leave(self) -> None:
        """Nothing to do."""


class MemoryChannel:
    """A channel of the contract in methods/base.py."""

    def __init__(
        self,
        transport: MemoryTransport,
        nbytes: int,
        rounds: Sequence[Neighbours],
        numbers: Mapping[tuple[str, int], int],
    ) -> None:
        self.nbytes = nbytes
        self._transport = transport
        self._rounds = tuple(rounds)
        self._numbers = numbers
        self._round = -1
        self._open: dict[int, tuple[Tensor, Tensor]] | None = None  # by target: the message and what it was
        self._received: dict[int, Tensor] = {}

    def send(self, message: Tensor | Mapping[int, Tensor]) -> None:
        if self._open is not None:
            raise TrainingError("a channel was asked to send before the last round was received")
        transport, neighbours = self._transport, self._rounds[(self._round + 1) % len(self._rounds)]
        messages = by_target(message, neighbours.targets, self.nbytes)
        for old in self._received.values():
            old.fill_(SPOILED)
        self._round += 1
        self._open = {}
        for target, one in messages.items():
            copy = one.clone()
            self._open[target] = (one, copy)
            transport.board.put(transport.rank, target, self._numbers["to", target], copy)
            transport.sent[target] += one.numel()

    def receive(self) -> dict[int, Tensor]:
        if self._open is None:
            raise TrainingError("a channel was asked to receive before the round was sent")
        transport, neighbours = self._transport, self._rounds[self._round % len(self._rounds)]
        self._received = {}
        start = monotonic_ns()
        for source in neighbours.sources:
            number = self._numbers["from", source]
            message = transport.board.take(source, transport.rank, number, transport.trace.step)
            buffer = torch.full((self.nbytes,), SPOILED, dtype=torch.uint8)
            buffer[: message.numel()] = message
            self._received[source] = buffer
            end = monotonic_ns()
            transport.trace.add(CODES["wait"], source, start, end, self.nbytes, self.nbytes)
            start = end
        for target, (message, copy) in self._open.items():
            if not torch.equal(message, copy):
                raise TrainingError(
                    f"w{transport.rank} changed its message to w{target} while it was under way",
                    hint="this is an error in the method: leave a message alone until receive has returned",
                )
        self._open = None
        return dict(self._received)

    @property
    def lost(self) -> Collection[int]:
        return ()


def run_in_memory(
    n: int,
    method: Method,
    make_task: Callable[[int, int, int], Task],
    gossip: Gossip,
    training: Training,
    *,
    seed: int = 1,
    directory: Path | None = None,
    message_timeout: float = 60.0,
    resume: bool = False,
    slow_motion: float = 1.0,
) -> list[JobResult]:
    """Train like train_local, in threads. Tasks must not use torch's global random numbers in training (dropout)."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="testbed-") as temporary:
        job = Job(
            rank=0,
            size=n,
            method=None,
            task=None,
            **graph_of(gossip),
            training=training,
            directory=str(directory or temporary),
            rendezvous="",
            seed=seed,
            message_timeout=message_timeout,
            resume=resume,
            slow_motion=slow_motion,
        )
        board = Switchboard(n, message_timeout)
        workers = []
        for rank in range(n):  # one after the other: models are initialised with torch's global generator
            trace = Trace(rank)
            transport = MemoryTransport(rank, board, trace)
            workers.append(
                prepare(job.for_rank(rank), board, transport, trace, method=method, task=make_task(rank, n, seed))
            )
        return _in_threads(board, [partial(train, worker) for worker in workers])


def _in_threads(board: Switchboard, calls: Sequence[Callable[[], JobResult]]) -> list[JobResult]:
    results: dict[int, JobResult] = {}
    errors: list[BaseException] = []

    def run(index: int, call: Callable[[], Any]) -> None:
        try:
            results[index] = call()
        except Exception as error:  # noqa: BLE001  # raised again below, in the caller's thread
            errors.append(error)
            board.fail()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise min(errors, key=lambda error: isinstance(error, _StoppedError))
    return [results[index] for index in range(len(calls))]
