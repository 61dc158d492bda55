"""Trains with real processes over loopback, then the same in memory; test_processes.py runs it as a program.

A program of its own, since the other tests use threads: a process forked after that may find a lock of BLAS taken.
"""

from __future__ import annotations

import sys
from pathlib import Path

import networkx as nx
import numpy as np
import torch

from testbed.methods import make
from testbed.tasks.base import Task
from testbed.tasks.base import make as make_task
from testbed.topology import mixing
from testbed.topology.gossip import Gossip
from testbed.topology.named import named
from testbed.worker.job import Training
from testbed.worker.local import train_local
from testbed.worker.memory import run_in_memory

N = 4
TRAINING = Training(steps=5, lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-4)
SPECS = {
    "dpsgd": "dpsgd",
    "dpsgd-b": {"dpsgd": {"order": "B"}},
    "dpsgd-serial": {"dpsgd": {"overlap": False}},
    "dpsgd-pairs": "dpsgd",
    "sgp-arcs": "sgp",
    "sgp-overlap-arcs": {"sgp": {"order": "A"}},
    "sgp-changing": "sgp",
    "naive": {"naive": {"compressor": {"quantize": "4bit"}}},
    "dcd": "dcd",
    "dcd-serial": {"dcd": {"overlap": False}},
    "ecd": "ecd",
    "deepsqueeze": {"deepsqueeze": {"compressor": {"topk": "10%"}}},
    "choco": {"choco": {"compressor": {"topk": "1%"}, "gamma": 0.05}},
    "choco-icml": {"choco": {"compressor": {"lowrank": 1}, "gamma": 0.05, "order": "icml"}},
    "choco-auto": "choco",
    "powergossip": {"powergossip": {"rank": 2, "iterations": 3}},
    "allreduce": "allreduce",
    "allreduce-8bit": {"allreduce": {"compressor": {"quantize": "8bit"}}},
    "ring": "ring",
    "ef_sign": "ef_sign",
    "dpsgd-changing": "dpsgd",
    "deepsqueeze-changing": {"deepsqueeze": {"gamma": 0.05}},
    "ddp": "ddp",
    "ddp-fp16": {"ddp": {"hook": "fp16"}},
    "ddp-powersgd": {"ddp": {"hook": "powersgd", "start": 2}},
}
IN_MEMORY = [name for name in SPECS if not name.startswith("ddp")]  # torch's DDP needs processes


def graph(name: str) -> Gossip:
    if name.endswith("-changing"):
        return mixing.one_peer_exponential(N)
    if name.endswith("-pairs"):
        return mixing.random_pairs(N, 1)
    if name.endswith("-arcs"):
        return mixing.push(nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]), "arcs")
    return mixing.metropolis(named("ring", N, 1), "ring")


def task(rank: int, size: int, seed: int) -> Task:
    return make_task({"model": "mlp", "data": "digits", "batch": 8}, rank=rank, size=size, seed=seed)


def main(out: Path) -> None:
    torch.set_num_threads(1)
    trained: dict[str, np.ndarray] = {}
    make("ddp").preload()
    for name, spec in SPECS.items():
        results = train_local(N, make(spec), task, graph(name), TRAINING, message_timeout=30.0)
        trained[f"{name}/processes"] = np.stack([result.x for result in results])
        trained[f"{name}/bytes"] = np.array([sum(result.bytes_sent.values()) for result in results])
    for name in IN_MEMORY:  # threads only from here on
        results = run_in_memory(N, make(SPECS[name]), task, graph(name), TRAINING)
        trained[f"{name}/memory"] = np.stack([result.x for result in results])
    np.savez(out, **trained)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
