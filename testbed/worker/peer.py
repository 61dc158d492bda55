"""A worker as its method sees it: parameters, directions, channels. The training loop makes it, methods use it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import monotonic_ns
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from testbed.errors import ScenarioError, TrainingError
from testbed.methods.base import Channel
from testbed.seeds import derive
from testbed.tasks.base import Task
from testbed.worker.clock import Clock, sleep_until
from testbed.worker.job import Job
from testbed.worker.optimiser import Optimiser
from testbed.worker.sockets import tcp_bytes_sent
from testbed.worker.trace import CODES, Span, Trace
from testbed.worker.transport import ALL, Neighbours, Transport

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_COMPUTE = CODES["compute"]


class WorkerPeer:
    """Implements Peer and ModulePeer of methods/base.py."""

    def __init__(self, job: Job, task: Task, transport: Transport, trace: Trace, clock: Clock) -> None:
        self.rank = job.rank
        self.size = job.size
        self.seed = job.seed
        self.gossip = job.gossip_graph()
        self.tolerant = job.tolerant
        self.absent: Collection[int] = ()
        self.layout = task.layout
        self.module = task.module
        self.x = task.initial().to(job.device)
        task.bind(self.x)
        self.step = 0
        self.lr = 0.0
        self.loss = float("nan")  # of the last direction
        self.slow_factor = 1.0  # a fault: gradients take this many times as long
        self.overruns = 0  # gradients that took longer than step_time
        self.optimiser = Optimiser(job.training, self.x, self.layout)
        self._training = job.training
        self._slow_motion = job.slow_motion
        self._step_ns = round(job.training.compute.step_time * job.slow_motion * 1e9)  # of real time
        self._task = task
        self._transport = transport
        self._trace = trace
        self._clock = clock
        self._gradient = torch.zeros_like(self.x)
        self._noise = _pseudo_gradients(job, self.x) if job.training.compute.mode == "emulated" else None
        self._all_connected = False

    def begin(self, step: int) -> None:
        self.step = self._trace.step = step
        self.lr = self._training.lr_at(step)

    def direction(self) -> Tensor:
        start = monotonic_ns()
        with self._padded():
            direction = self.optimiser.direction(self._compute())
        self._pad(start)
        if self.slow_factor > 1:
            sleep_until(start + round(self.slow_factor * (monotonic_ns() - start)))
        self._trace.add(_COMPUTE, -1, start, monotonic_ns())
        return direction

    def channel(
        self, nbytes: int, *, targets: Sequence[int] | None = None, sources: Sequence[int] | None = None
    ) -> Channel:
        fixed = targets is not None and sources is not None
        if not fixed and self.gossip.drawn is not None:
            raise TrainingError(
                f"{self.gossip.name} has no cycle that a channel could follow",
                hint="this is an error in the method: ask testbed.methods.mixing.rounds, or name targets and sources",
            )
        cycle = [self.step] if fixed or self.gossip.static else range(self.step, self.step + len(self.gossip.matrices))
        rounds = [
            Neighbours(
                tuple(sorted(self.gossip.targets(step, self.rank) if targets is None else targets)),
                tuple(sorted(self.gossip.sources(step, self.rank) if sources is None else sources)),
            )
            for step in cycle
        ]
        return self._transport.channel(nbytes, rounds)

    def all_reduce(self, tensor: Tensor) -> None:
        if not self._all_connected:
            self._all_connected = True
            with self._clock.paused():
                self._transport.connect_all()
        self._transport.all_reduce(tensor)

    def span(self, kind: str) -> Span:
        return self._trace.span(kind)

    def process_group(self) -> ProcessGroup:
        return self._transport.process_group()

    def loss_of_step(self) -> Tensor:
        return self._task.loss_of_step(self.step)

    def direction_from(self, loss: Callable[[], Tensor]) -> Tensor:
        """Run the backward pass, during which the maker of `loss` may exchange gradients. Padding comes before it:
        sleeping after it would hide communication that a real gradient of this length could not hide."""
        if self._noise is not None:
            raise ScenarioError(
                "emulated compute has no backward pass for ddp to overlap with",
                hint="use compute: real or step_time, or the allreduce and ring methods",
            )
        start, sent = monotonic_ns(), tcp_bytes_sent()
        self._task.grad.zero_()
        with self._padded():
            value = loss()
        forward = monotonic_ns() - start
        if self._training.compute.mode != "real":  # there it has been stretched
            forward = round(forward * self._slow_motion)
        self._pad(start - 2 * forward)  # a backward pass takes about twice as long as a forward pass
        if self.slow_factor > 1:
            whole = max(3 * forward, self._step_ns)
            sleep_until(start + round(self.slow_factor * whole) - 2 * forward)
        with self._backward():
            try:
                value.backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
            except RuntimeError as error:
                raise self._transport.reason(error, start) from error
            self.loss = float(value.item())
            direction = self.optimiser.direction(self._task.grad)
        self._trace.add(_COMPUTE, -1, start, monotonic_ns())
        self._transport.sent[ALL] = self._transport.sent.get(ALL, 0) + tcp_bytes_sent() - sent
        return direction

    def _compute(self) -> Tensor:
        """Compute the gradient, or with emulated compute something of its size."""
        if self._noise is None:
            self.loss = self._task.gradient(self.step, self._gradient)
        elif self._training.compute.pseudo_gradient:
            start = derive(self.seed, "pseudo", self.step) % self.x.numel()
            self._gradient.copy_(self._noise[start : start + self.x.numel()])
        else:
            self._gradient.zero_()
        return self._gradient

    def _padded(self) -> AbstractContextManager[object]:
        """Exclude waiting for a processor where `_pad` follows: it shortens the padding and costs nothing. A real
        gradient is padded only in slow motion."""
        if self._training.compute.mode != "real":
            return self._clock.cpu_wait.uncounted()
        return self._trace.padding.begin() if self._trace.padding else nullcontext()

    @contextmanager
    def _backward(self) -> Iterator[None]:
        """Stretch a backward pass during which gradients are exchanged as it goes on, in slow motion, with every
        parameter that has its gradient: there would else be less time to hide messages in."""
        padding = self._trace.padding
        if padding is None or self.x.device.type != "cpu" or self.module is None:
            yield
            return
        with padding.begin() as block:
            hooks = [
                parameter.register_post_accumulate_grad_hook(lambda _: block.end())  # type: ignore[no-untyped-call]
                for parameter in self.module.parameters()
                if parameter.requires_grad
            ]
            try:
                yield
            finally:
                for hook in hooks:
                    hook.remove()

    def _pad(self, start_ns: int) -> None:
        """Sleep until step_time after start_ns."""
        if self._training.compute.mode == "real":
            return
        until = start_ns + self._step_ns
        if until < monotonic_ns():
            self.overruns += 1
        sleep_until(until)


def _pseudo_gradients(job: Job, x: Tensor) -> Tensor:
    """Return normal noise, twice as long as the model: each step takes another window of it, which costs one copy."""
    generator = torch.Generator().manual_seed(derive(job.seed, "pseudo", job.rank))
    return torch.randn(2 * x.numel(), generator=generator).mul_(1e-3).to(x.device)
