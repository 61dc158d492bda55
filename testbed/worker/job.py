"""What a worker is told to do: plain data that travels as JSON. Controllers write it, `loop.run_job` reads it."""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import asdict, dataclass, field, replace
from math import cos, pi
from typing import Any, Literal

import numpy as np

from testbed.topology.gossip import Gossip


@dataclass(frozen=True)
class Compute:
    """How long a gradient takes."""

    mode: Literal["real", "step_time", "emulated"] = "real"
    step_time: float = 0.0  # seconds; step_time pads each gradient to this, emulated sleeps this long instead
    pseudo_gradient: bool = True  # emulated only: a cheap deterministic vector instead of zeros


@dataclass(frozen=True)
class Training:
    """The optimiser and its schedule, equal for all methods."""

    steps: int = 100
    lr: float = 0.1
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_vectors: bool = False  # weight decay on 1-D tensors (biases, norms) too
    warmup: int = 0  # steps of linear warm-up to lr
    schedule: Literal["constant", "cosine", "milestones"] = "constant"  # cosine: to 0 over all steps
    milestones: tuple[int, ...] = ()  # steps at which lr is multiplied by lr_factor
    lr_factor: float = 0.1
    eval_every: int = 0  # steps; 0: only the final model
    eval_models: Literal["all", "average"] = "all"  # each worker's model and their average, or the average only
    checkpoint_every: int = 0  # steps; 0: never
    compute: Compute = field(default_factory=Compute)

    def lr_at(self, step: int) -> float:
        lr = self.lr
        if self.schedule == "cosine":
            lr *= (1 + cos(pi * step / self.steps)) / 2
        if self.schedule == "milestones":
            lr *= self.lr_factor ** bisect_right(sorted(self.milestones), step)
        return lr * (step + 1) / self.warmup if step < self.warmup else lr


@dataclass(frozen=True)
class Job:
    """One worker's part of one cell."""

    rank: int
    size: int
    method: Any  # as in the scenario: "dpsgd" or {"choco": {…}}
    task: Any  # as in the scenario: "digits" or {"model": …}
    gossip: tuple[tuple[tuple[float, ...], ...], ...]  # mixing matrices
    training: Training
    directory: str  # of the cell, the same for all workers: results, snapshots, checkpoints
    rendezvous: str  # a file that does not exist yet, the same for all workers
    gossip_name: str = "gossip"
    seed: int = 1
    backend: Literal["gloo", "nccl"] = "gloo"
    interface: str = "lo"  # where the emulated network is plugged in
    device: str = "cpu"
    gpus: tuple[str, ...] = ()  # UUIDs of those that the worker may see; device cuda is the first of them
    deadline: float = 60.0  # seconds to wait for one message
    watch_every: int = 0  # steps: in one of so many, threads note when messages come in during compute; 0: in none
    resume: bool = False  # go on from the newest checkpoint that all workers have
    life: int = 0  # above 0 the worker was started again in a running cell, and rejoins
    tolerant: bool = False  # the method can go on without workers that are lost, and shall
    data_dir: str | None = None
    names: tuple[str, ...] = ()  # of the workers; w0, w1, … if empty
    beside: str | None = None  # the scenario's directory, where files of one's own methods and compressors are
    progress: str | None = None  # the file in which the controller watches, and by which it slows workers

    def name_of(self, rank: int) -> str:
        return self.names[rank] if self.names else f"w{rank}"

    def for_rank(self, rank: int) -> Job:
        return replace(self, rank=rank)

    def gossip_graph(self) -> Gossip:
        return Gossip(self.gossip_name, tuple(np.array(matrix, dtype=np.float64) for matrix in self.gossip))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        data = json.loads(text)
        training = data["training"]
        training["milestones"] = tuple(training["milestones"])
        training["compute"] = Compute(**training["compute"])
        data["training"] = Training(**training)
        data["gossip"] = matrices(data["gossip"])
        data["names"] = tuple(data["names"])
        data["gpus"] = tuple(data["gpus"])
        return Job(**data)


def matrices(rows: Any) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Mixing matrices (arrays or nested lists) as the plain tuples a Job carries."""
    return tuple(tuple(tuple(float(w) for w in row) for row in matrix) for matrix in rows)
