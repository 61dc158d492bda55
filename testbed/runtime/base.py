"""What a runtime is to the controller: something that runs the workers of a cell, isolated, and tells how it went."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from testbed.errors import TrainingError
from testbed.network.handle import Handle
from testbed.plan import NetworkPlan
from testbed.runtime.gpus import Assigned
from testbed.worker.job import Job


@dataclass(frozen=True)
class Allowance:
    """What one worker may use."""

    cores: tuple[int, ...] = ()  # which processors; empty: any
    cpus: float | None = None  # how much of them, where that is no whole number
    memory: int | None = None  # bytes; None: no limit


@dataclass(frozen=True)
class Place:
    """Where workers run, and what they need to see."""

    run: Path  # the run's directory
    network: NetworkPlan
    image: str = "host"  # for containers
    data: Path | None = None  # where data sets are, if not in the usual place
    code: tuple[Path, ...] = ()  # directories with methods and compressors of one's own
    gpus: Assigned = field(default_factory=dict)  # by worker


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    error: str | None = None
    hint: str | None = None
    storage: bool = False  # results could not be written: other cells would fare no better
    diverged: Mapping[str, Any] | None = None  # where a model was first seen to be no number any more: worker, step


def out_of_memory(names: Sequence[str], allowed: int | None) -> Outcome:
    """The kernel only kills; who was killed for want of memory is written elsewhere."""
    why = f"the scenario allows {allowed / 1e6:.0f} MB each" if allowed else "the machine has no more"
    return Outcome(
        f"{', '.join(names)} ran out of memory: {why}", "raise workers.memory, or take a smaller model or batch"
    )


class Runtime(ABC):
    """Isolates workers; lives for all cells of a run."""

    name: ClassVar[str]
    shortcomings: Sequence[str] = ()  # what of the allowances could not be enforced in this cell

    def environment(self) -> dict[str, Any]:
        """What the run's record says of it."""
        return {}

    @abstractmethod
    def attach(self, handle: Handle) -> None:
        """The network that workers shall be in. Before it, whatever takes time can already begin."""

    @abstractmethod
    def start(self, jobs: Sequence[Job], logs: Path, allowances: Sequence[Allowance]) -> None:
        """Begin a cell."""

    @abstractmethod
    def pids(self) -> Sequence[int]:
        """The workers' processes as this host sees them, by rank."""

    @abstractmethod
    def poll(self, seconds: float) -> Outcome | None:
        """Wait that long at most; the outcome once all workers are done."""

    @abstractmethod
    def kill(self, rank: int) -> None:
        """End a worker at once, as by a power cut."""

    def restart(self, rank: int, job: Job) -> None:
        """Start a worker of the running cell again that has died; its job tells it to rejoin (job.life > 0). The
        death of the life before is on record (may_lose of testbed.worker.lost was asked) when this returns. Nothing
        happens where the cell is about to end. `pids` has the new process from then on."""
        raise TrainingError(f"the {self.name} runtime cannot restart workers")

    @abstractmethod
    def freeze(self, rank: int, frozen: bool) -> None:
        """Stop a worker silently, or let it go on."""

    @abstractmethod
    def close(self) -> None:
        """End everything this runtime started."""
