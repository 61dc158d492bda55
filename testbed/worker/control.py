"""The meeting point of all workers: a file in the run directory, never a packet on the emulated network.

The training loop meets its peers here before the clock starts and before anybody leaves.
"""

from __future__ import annotations

from datetime import timedelta
from time import monotonic_ns

from torch import distributed as dist
from torch._C._distributed_c10d import Store

from testbed.errors import TrainingError
from testbed.worker.transport import Control


def open_store(rendezvous: str, purpose: str) -> Store:
    """Keys shared by all workers of a job. A store of its own per caller: one that waits would block the others."""
    store: Store = dist.PrefixStore(purpose, dist.FileStore(rendezvous, -1))  # type: ignore[attr-defined]
    return store


class FileControl(Control):
    """Meets in a FileStore, which works between processes, namespaces and containers of one host."""

    def __init__(self, rendezvous: str, size: int, patience: float) -> None:
        self._store = open_store(rendezvous, "control")
        self._size = size
        self._patience = patience  # seconds

    def meet(self, name: str) -> int:
        came = self._store.add(f"{name}/came", 1)
        if came == self._size:
            self._store.set(f"{name}/complete", str(monotonic_ns()))
        try:
            self._store.wait([f"{name}/complete"], timedelta(seconds=self._patience))
        except RuntimeError as error:
            missing = self._size - self._store.add(f"{name}/came", 0)
            raise TrainingError(
                f"{missing} of {self._size} workers did not come to '{name}' within {self._patience:.0f} s",
                hint="look for the worker that failed or is stuck; its log says more",
            ) from error
        return int(self._store.get(f"{name}/complete"))
