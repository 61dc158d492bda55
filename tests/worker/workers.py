"""What the tests of the worker share: forked workers with a transport, a small task, rings."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from testbed.flat import Layout
from testbed.seeds import derive
from testbed.tasks.base import Task
from testbed.topology.gossip import Gossip
from testbed.worker.control import FileControl
from testbed.worker.forked import run_forked
from testbed.worker.gloo import GlooTransport
from testbed.worker.job import Job, Training, matrices
from testbed.worker.trace import Trace

T = TypeVar("T")


def ring(n: int) -> Gossip:
    W = np.array([[1 / 3 if (i - j) % n in (0, 1, n - 1) else 0.0 for j in range(n)] for i in range(n)])
    return Gossip("ring", (W / W.sum(axis=1, keepdims=True),))


def make_job(n: int, directory: Path | str, **options: Any) -> Job:
    chosen = {
        "rank": 0,
        "size": n,
        "method": None,
        "task": None,
        "gossip": matrices(ring(n).matrices),
        "training": Training(),
        "directory": str(directory),
        "rendezvous": str(Path(directory) / "rendezvous"),
    }
    return Job(**{**chosen, **options})


def in_workers(n: int, call: Callable[[GlooTransport, Job], T], **options: Any) -> list[T]:
    """call(transport, job) in n processes; none leaves before all are through."""
    with tempfile.TemporaryDirectory() as directory:
        job = make_job(n, directory, **options)
        return run_forked([partial(_worker, call, job.for_rank(rank)) for rank in range(n)])


def _worker(call: Callable[[GlooTransport, Job], T], job: Job) -> T:
    torch.set_num_threads(1)
    transport = GlooTransport(job, Trace(job.rank))
    result = call(transport, job)
    FileControl(job.rendezvous, job.size, 60).meet("end")
    transport.leave()
    return result


def neighbours_of(rank: int, n: int) -> tuple[int, ...]:
    return tuple(sorted({(rank - 1) % n, (rank + 1) % n} - {rank}))


def message_of(sender: int, number: int, nbytes: int, purpose: str = "") -> Tensor:
    """Bytes that only this sender sends, and only in this round."""
    generator = torch.Generator().manual_seed(derive(sender, purpose, number))
    return torch.randint(0, 256, (nbytes,), generator=generator, dtype=torch.uint8)


class Bowl(Task):
    """f_i(x) = ½‖x − a_i‖² with noise in the gradient: a minimum known by hand, a different one per rank."""

    module = None

    def __init__(
        self, rank: int, size: int, seed: int, *, kill_at: int | None = None, once: Path | None = None
    ) -> None:
        self.layout = Layout.of([("weight", (6, 5)), ("bias", (5,))])
        self._rank, self._seed = rank, seed
        self._kill_at, self._once = kill_at, once
        self._target = self._normal("target")

    def _normal(self, *purpose: int | str) -> Tensor:
        generator = torch.Generator().manual_seed(derive(self._seed, self._rank, *purpose))
        return torch.randn(self.layout.numel, generator=generator)

    def initial(self) -> Tensor:
        return torch.randn(self.layout.numel, generator=torch.Generator().manual_seed(derive(self._seed, "model")))

    def bind(self, x: Tensor) -> None:
        self._x = x
        self.grad = torch.zeros_like(x)

    def gradient(self, step: int, out: Tensor) -> float:
        if step == self._kill_at and self._once is not None and not self._once.exists():
            self._once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        torch.sub(self._x, self._target, out=out)
        out += 0.1 * self._normal("noise", step)
        return float(0.5 * (self._x - self._target).square().sum())

    def loss_of_step(self, step: int) -> Tensor:
        return 0.5 * (self._x - self._target).square().sum()

    def evaluate(self, x: Tensor) -> dict[str, float]:
        return {"loss": float(0.5 * (x - self._target).square().sum())}


def bowl(rank: int, size: int, seed: int) -> Bowl:
    return Bowl(rank, size, seed)
