"""A worker's job: plain data that travels as JSON. Controllers write it, `loop.run_job` reads it."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import cos, pi
from pathlib import Path
from typing import Any, Literal

import numpy as np

from testbed.topology.gossip import Gossip, Kind, RandomPairs


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
    directory: str  # lent to the workers of a cell, the same for all: results, snapshots, checkpoints
    rendezvous: str  # a file that does not exist yet, the same for all workers
    gossip_name: str = "gossip"
    gossip_kind: Kind = "doubly"
    gossip_seed: int | None = None  # of a graph that is drawn anew in every round
    seed: int = 1
    backend: Literal["gloo", "nccl"] = "gloo"
    interface: str = "lo"  # where the emulated network is plugged in
    device: str = "cpu"
    gpus: tuple[str, ...] = ()  # UUIDs of those that the worker may see; device cuda is the first of them
    message_timeout: float = 60.0  # real seconds to wait for one message
    slow_motion: float = 1.0  # real seconds that a second of the scenario lasts; step_time is the scenario's
    cpu_share: float = 1.0  # of a core, where the worker may not use a whole one
    pacing: Literal["auto", "off"] = "auto"  # of Gloo's connections; found by the workers themselves
    watch_every: int = 0  # steps: in one of so many, threads note when messages come in during compute; 0: in none
    resume: bool = False  # go on from the newest checkpoint that all workers have
    life: int = 0  # above 0 the worker was started again in a running cell, and rejoins
    tolerant: bool = False  # the method can go on without workers that are lost, and shall
    data_dir: str | None = None
    names: tuple[str, ...] = ()  # of the workers; w0, w1, … if empty
    beside: str | None = None  # the scenario's directory, where files of one's own methods and compressors are
    progress: str | None = None  # the file in which the controller watches
    notices: str | None = None  # the directory of its notices to workers; they only read it

    def name_of(self, rank: int) -> str:
        return self.names[rank] if self.names else f"w{rank}"

    @property
    def news(self) -> Path:
        """Return the directory where workers learn which are lost: the controller's own, where there is one."""
        return Path(self.notices or self.directory)

    def for_rank(self, rank: int) -> Job:
        return replace(self, rank=rank)

    def gossip_graph(self) -> Gossip:
        if self.gossip_seed is not None:
            return RandomPairs.of(self.size, self.gossip_seed)
        arrays = tuple(np.array(matrix, dtype=np.float64) for matrix in self.gossip)
        return Gossip(self.gossip_name, arrays, self.gossip_kind)

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Job:
        return Job(**_decoded(json.loads(text)))


def all_to_json(jobs: Sequence[Job]) -> str:
    """Encode the jobs of a cell: the first, and how each differs from it. Their mixing matrices are written once: a
    thousand workers have a million weights."""
    first = jobs[0]
    own = [
        {one.name: mine for one in fields(job) if (mine := getattr(job, one.name)) is not getattr(first, one.name)}
        for job in jobs
    ]
    return json.dumps({"first": asdict(first), "own": own})


def all_from_json(text: str) -> list[Job]:
    """Decode the jobs that `all_to_json` wrote; what they have in common is in memory once."""
    data = json.loads(text)
    first = Job(**_decoded(data["first"]))
    return [replace(first, **_decoded(own)) for own in data["own"]]


def _decoded(data: dict[str, Any]) -> dict[str, Any]:
    """Decode some fields of a job from JSON into their own types."""
    if "training" in data:
        training = data["training"]
        training["milestones"] = tuple(training["milestones"])
        training["compute"] = Compute(**training["compute"])
        data["training"] = Training(**training)
    if "gossip" in data:
        data["gossip"] = matrices(data["gossip"])
    for name in ("names", "gpus"):
        if name in data:
            data[name] = tuple(data[name])
    return data


def graph_of(gossip: Gossip) -> dict[str, Any]:
    """Return the fields of a Job that hold a gossip graph."""
    return {
        "gossip": () if gossip.drawn is not None else matrices(gossip.matrices),
        "gossip_name": gossip.name,
        "gossip_kind": gossip.kind,
        "gossip_seed": gossip.drawn,
    }


def matrices(rows: Any) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Return mixing matrices (arrays or nested lists) as the plain tuples a Job carries."""
    return tuple(tuple(tuple(float(w) for w in row) for row in matrix) for matrix in rows)
