"""The meeting point of all workers: a file in the run directory, never a packet on the emulated network.

The training loop meets its peers here before the clock starts and before any worker leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic, monotonic_ns, sleep

from torch import distributed as dist
from torch._C._distributed_c10d import Store

from testbed.errors import TrainingError
from testbed.worker.lost import Lost
from testbed.worker.transport import Control

POLL = 0.01  # seconds; the store's own `wait` looks as often, but cannot look for anything else meanwhile
MANY = 32  # workers; more of them look less often: each look locks the file for all, and they share the processors


def open_store(rendezvous: str, purpose: str) -> Store:
    """Open keys shared by all workers of a job. Each caller needs its own store: a waiting one blocks the others."""
    store: Store = dist.PrefixStore(purpose, dist.FileStore(rendezvous, -1))  # type: ignore[attr-defined]
    return store


class FileControl(Control):
    """Meets in a FileStore, which works between processes, namespaces and containers of one host."""

    def __init__(
        self, rendezvous: str, size: int, patience: float, *, rank: int | None = None, lost: Lost | None = None
    ) -> None:
        """With `lost` (and the own rank) lost workers are not waited for."""
        self._store = open_store(rendezvous, "control")
        self._size = size
        self._patience = patience  # seconds
        self._pause = POLL * max(1.0, size / MANY)
        self._rank = rank
        self._lost = lost

    def meet(self, name: str) -> int:
        if self._rank is not None:
            self._store.set(f"{name}/{self._rank}", "")
        if self._store.add(f"{name}/came", 1) == self._size:
            self._close(name)
        end = monotonic() + self._patience
        while not self._store.check([f"{name}/complete"]):
            if self._others_are_lost(name):
                self._close(name)
            elif monotonic() >= end:
                missing = self._size - self._store.add(f"{name}/came", 0)
                raise TrainingError(
                    f"{missing} of {self._size} workers did not come to '{name}' within {self._patience:.0f} s",
                    hint="look for the worker that failed or is stuck; its log says more",
                )
            else:
                sleep(self._pause)
        return int(self._store.get(f"{name}/complete").split()[0])

    def present(self, name: str) -> Sequence[int]:
        return [int(rank) for rank in self._store.get(f"{name}/complete").split()[1:]]

    def share(self, name: str, rank: int, text: str) -> Sequence[str]:
        keys = [f"share/{name}/{one}" for one in range(self._size)]
        self._store.set(keys[rank], text)
        self.meet(name)
        return [self._store.get(key).decode() if self._store.check([key]) else "" for key in keys]

    def note(self, name: str, text: str) -> None:
        self._store.set(f"note/{name}", text)

    def noted(self, name: str) -> str:
        """Return what any worker passed to `note`."""
        return str(self._store.get(f"note/{name}").decode())

    def _close(self, name: str) -> None:
        """Close the meeting. The first caller decides when it was and who was there."""
        if self._store.add(f"{name}/closed", 1) == 1:
            there = set(range(self._size)) - (self._lost.ranks() if self._lost else set())
            self._store.set(f"{name}/complete", " ".join(map(str, [monotonic_ns(), *sorted(there)])))

    def _others_are_lost(self, name: str) -> bool:
        """Whether all that have not come are lost."""
        if self._lost is None or not (lost := self._lost.ranks()):
            return False
        return all(rank in lost or self._store.check([f"{name}/{rank}"]) for rank in range(self._size))
