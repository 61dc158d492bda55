"""Assigns GPUs of a machine to workers. Pure; the runtime looks for them (runtime/gpus.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from testbed.scenario.model import Scenario


@dataclass(frozen=True)
class Gpu:
    """One GPU of this machine."""

    index: int  # in the order of nvidia-smi
    uuid: str
    name: str
    memory: int  # bytes

    def __str__(self) -> str:
        return f"{self.index} {self.name}"


Assigned = Mapping[str, tuple[Gpu, ...]]  # by worker, the GPUs it sees; none: it trains on processors


@dataclass(frozen=True)
class Supply:
    """The GPUs that workers can be given here."""

    gpus: tuple[Gpu, ...] = ()
    missing: str = "this machine has no GPU"  # why there are none


def assign(setting: str | Mapping[str, Sequence[int]], names: Sequence[str], supply: Supply) -> Assigned:
    """Assign GPUs by the scenario's `workers.gpus`; ScenarioError where that is impossible. Pure."""
    gpus = supply.gpus
    if setting == "none" or (setting == "auto" and not gpus):
        return dict.fromkeys(names, ())
    if not gpus:
        raise ScenarioError(supply.missing, hint="gpus: auto takes processors where there are no GPUs")
    if isinstance(setting, Mapping):
        if absent := sorted({number for some in setting.values() for number in some if number >= len(gpus)}):
            raise ScenarioError(f"there is no GPU {absent[0]}: this machine has {count(len(gpus))}, counted from 0")
        return {name: tuple(gpus[number] for number in dict.fromkeys(setting.get(name, ()))) for name in names}
    if setting == "one-each" and len(names) > len(gpus):
        raise ScenarioError(
            f"one GPU each for {len(names)} workers: this machine has {count(len(gpus))}",
            hint=f"take {len(gpus)} workers, or gpus: share",
        )
    return {name: (gpus[rank % len(gpus)],) for rank, name in enumerate(names)}


def exclusive(assigned: Assigned) -> bool:
    """Whether every worker has GPUs that no other worker uses: what NCCL needs."""
    uuids = [gpu.uuid for some in assigned.values() for gpu in some]
    return all(assigned.values()) and len(set(uuids)) == len(uuids)


def backend(assigned: Assigned, *, tolerant: bool) -> Literal["gloo", "nccl"]:
    """Return the backend that messages travel with, the same for all methods of a scenario. `tolerant`: workers may be
    lost or rejoin, which NCCL does not survive."""
    return "nccl" if exclusive(assigned) and len(assigned) > 1 and not tolerant else "gloo"


def advice(scenario: Scenario, assigned: Assigned, supply: Supply) -> list[str]:
    """Return notes on what people may not expect."""
    if scenario.workers.gpus == "auto" and not supply.gpus and supply != Supply():
        return [f"workers train on processors: {supply.missing}"]
    used = {gpu.uuid for some in assigned.values() for gpu in some}
    if used and all(assigned.values()) and not exclusive(assigned):
        text = f"{len(assigned)} workers share {count(len(used))}: messages travel with Gloo, as NCCL wants a GPU each"
        if scenario.compute.kind == "real":
            text += "; compute: {step_time: 60ms} keeps their waiting for each other out of the comparison"
        return [text]
    return []


def count(number: int) -> str:
    return f"{number} GPU" if number == 1 else f"{number} GPUs"
