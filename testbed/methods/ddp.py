"""torch's DistributedDataParallel, what most users run: Li et al. 2020, "PyTorch Distributed", arXiv 2006.15704.

Gradients are averaged bucket by bucket while the backward pass still computes the earlier layers; momentum then acts on
the mean gradient. The hooks are torch's own: fp16 halves the bytes; powersgd (Vogels et al. 2019, arXiv 1905.13727)
sends rank-`rank` factors with error feedback after `start` uncompressed steps. Needs a task with a torch module. What
PowerSGD's hook remembers is not part of a checkpoint, so that an interrupted training starts afresh.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from testbed.compressors.base import option
from testbed.compressors.options import choice, whole
from testbed.errors import TrainingError
from testbed.methods.base import Method, ModulePeer, Peer
from testbed.methods.mixing import descend


class StepLoss(torch.nn.Module):
    """The loss of the current step as a forward pass, so that DDP sees it start and the model inside it."""

    def __init__(self, module: torch.nn.Module, loss_of_step: Callable[[], Tensor]) -> None:
        super().__init__()
        self.module = module
        self.loss_of_step = loss_of_step

    def forward(self) -> Tensor:
        return self.loss_of_step()


@dataclass
class State:
    """The wrapped model."""

    parallel: DistributedDataParallel


@dataclass(frozen=True)
class DDP(Method):
    """torch's own data parallelism, with its default buckets and communication hooks."""

    name = "ddp"
    paper = "Li et al. 2020, arXiv 2006.15704"
    form = "all-reduce"
    resumes = False  # torch sorts its buckets anew after the first step, and hooks remember what no checkpoint has

    hook: Literal["none", "fp16", "powersgd"] = option(
        "none",
        help="what travels: none is fp32 as it is, fp16 half of that, powersgd low-rank factors",
        parse=choice("none", "fp16", "powersgd"),
    )
    rank: int = option(1, help="of PowerSGD's factors", parse=whole(1))
    start: int = option(10, help="steps before PowerSGD begins to compress", parse=whole(2))
    bucket_mb: int = option(25, help="size of a bucket in MiB; 25 is torch's own", parse=whole(1))

    @property
    def overlaps(self) -> bool:
        return True

    def preload(self) -> None:
        import torch._dynamo  # noqa: F401  # DDP's constructor does, for two seconds

    def init(self, peer: Peer) -> State:
        if not isinstance(peer, ModulePeer) or peer.module is None:
            raise TrainingError("ddp needs a task with a torch module", hint="use allreduce or ring for this task")
        loss = StepLoss(peer.module, peer.loss_of_step)
        parallel = DistributedDataParallel(loss, process_group=peer.process_group(), bucket_cap_mb=self.bucket_mb)
        self._register_hook(parallel)
        return State(parallel)

    def _register_hook(self, parallel: DistributedDataParallel) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        if self.hook == "fp16":
            parallel.register_comm_hook(parallel.process_group, default_hooks.fp16_compress_hook)
        if self.hook == "powersgd":
            memory = powerSGD_hook.PowerSGDState(
                parallel.process_group, matrix_approximation_rank=self.rank, start_powerSGD_iter=self.start
            )
            parallel.register_comm_hook(memory, powerSGD_hook.powerSGD_hook)

    def step(self, peer: Peer, state: State) -> None:
        descend(peer, cast(ModulePeer, peer).direction_from(state.parallel))
