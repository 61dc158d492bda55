"""The runtime interface: runs the workers of a cell, isolated, and reports the outcome. The controller uses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from testbed.errors import TestbedError, TrainingError
from testbed.network.client import Client
from testbed.plan.gpus import Assigned
from testbed.plan.model import NetworkPlan
from testbed.runtime.confine import USER as USER
from testbed.worker.job import Job
from testbed.worker.progress import Board

PROCESSES = 1024  # and threads, of one worker: it has a few per neighbour


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
    lent: Path  # in it, what workers of a cell may write to has a directory
    notices: Path  # likewise, what they are told
    network: NetworkPlan
    image: str = "host"  # for containers
    data: Path | None = None  # where data sets are, if not in the usual place
    code: tuple[Path, ...] = ()  # directories with methods and compressors of one's own
    gpus: Assigned = field(default_factory=dict)  # by worker


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    cause: TestbedError | None = None  # why it failed, or diverged


def out_of_memory(names: Sequence[str], allowed: int | None) -> Outcome:
    """Blame a lack of memory: the kernel only kills, and records elsewhere which workers it killed for that."""
    why = f"the scenario allows {allowed / 1e6:.0f} MB each" if allowed else "the machine has no more"
    hint = "raise workers.memory, or take a smaller model or batch"
    return Outcome(TrainingError(f"{', '.join(names)} ran out of memory: {why}", hint=hint))


class Runtime(ABC):
    """Isolates workers; lives for all cells of a run."""

    name: ClassVar[str]
    shortcomings: Sequence[str] = ()  # what of the allowances could not be enforced in this cell

    @abstractmethod
    def __init__(self, place: Place) -> None: ...

    @classmethod
    def check(cls) -> None:
        """Check before anything is started; MissingError where this machine cannot run it. Most need nothing."""
        return

    def environment(self) -> dict[str, Any]:
        """Return what the run's record says of it."""
        return {}

    @abstractmethod
    def attach(self, handle: Client) -> None:
        """Attach the workers' network. Slow preparations may begin before."""

    @abstractmethod
    def start(self, jobs: Sequence[Job], board: Board, logs: Path, allowances: Sequence[Allowance]) -> None:
        """Begin a cell. From now on workers may write the jobs' directory and the board's records."""

    @abstractmethod
    def pids(self) -> Sequence[int]:
        """Return the workers' processes as this host sees them, by rank."""

    @abstractmethod
    def poll(self, seconds: float) -> Outcome | None:
        """Wait at most that long; return the outcome once all workers are done."""

    @abstractmethod
    def kill(self, rank: int) -> None:
        """Kill a worker at once, as a power cut would."""

    def restart(self, rank: int, job: Job) -> None:
        """Start a dead worker of the running cell again; its job tells it to rejoin (job.life > 0). The previous death
        is on record when this returns (may_lose of testbed.worker.lost was asked). Nothing happens where the cell is
        about to end. `pids` has the new process from then on."""
        raise TrainingError(f"the {self.name} runtime cannot restart workers")

    @abstractmethod
    def freeze(self, rank: int, frozen: bool) -> None:
        """Stop a worker silently, or let it continue."""

    @abstractmethod
    def close(self) -> None:
        """End everything this runtime started."""
