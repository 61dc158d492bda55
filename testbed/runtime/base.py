"""What a runtime is to the controller: something that runs the workers of a cell, isolated, and tells how it went."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from testbed.network.handle import Handle
from testbed.worker.job import Job


@dataclass(frozen=True)
class Allowance:
    """What one worker may use."""

    cores: tuple[int, ...] = ()  # which processors; empty: any
    cpus: float | None = None  # how much of them, where that is no whole number
    memory: int | None = None  # bytes; None: no limit


@dataclass(frozen=True)
class Outcome:
    """How a cell ended."""

    error: str | None = None
    hint: str | None = None
    storage: bool = False  # results could not be written: other cells would fare no better


class Runtime(ABC):
    """Isolates workers; lives for all cells of a run."""

    name: ClassVar[str]
    shortcomings: Sequence[str] = ()  # what of the allowances could not be enforced in this cell

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

    @abstractmethod
    def freeze(self, rank: int, frozen: bool) -> None:
        """Stop a worker silently, or let it go on."""

    @abstractmethod
    def close(self) -> None:
        """End everything this runtime started."""
