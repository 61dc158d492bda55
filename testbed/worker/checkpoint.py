"""A worker's whole state on disk, so that a killed run goes on as if nothing had happened. The training loop calls it.

`<cell>/checkpoints/<step>/<rank>.pt`. Workers write at their own pace; a run resumes from the newest step all have, and
older ones are deleted once a newer one is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from testbed.errors import TrainingError
from testbed.methods import checkpoint as method_state
from testbed.tasks.base import Task
from testbed.worker.peer import WorkerPeer


@runtime_checkable
class Remembering(Protocol):
    """A task that carries something from step to step besides x and the buffers of its module."""

    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


class Checkpoints:
    """Of one worker."""

    def __init__(self, cell: Path, rank: int, size: int) -> None:
        self._directory = cell / "checkpoints"
        self._rank = rank
        self._size = size

    def save(self, step: int, peer: WorkerPeer, task: Task, state: Any, loop: Mapping[str, Any]) -> None:
        """After `step` steps and method.finish. `loop` is what the training loop itself wants back."""
        content = {
            "step": step,
            "x": peer.x,
            "momentum": peer.optimiser.momentum,
            "method": method_state.save(state),
            "buffers": list(task.module.buffers()) if task.module is not None else [],
            "task": task.state() if isinstance(task, Remembering) else {},
            "loop": dict(loop),
        }
        path = self._path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        with unfinished.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        self._prune()

    def newest(self) -> int | None:
        """The newest step that all workers have."""
        return max((step for step in self._steps() if self._complete(step)), default=None)

    def _complete(self, step: int) -> bool:
        try:
            return len(list(self._path(step).parent.glob("*.pt"))) == self._size
        except FileNotFoundError:  # others have just deleted it: there is a newer one
            return False

    def load(self, step: int, peer: WorkerPeer, task: Task, state: Any) -> dict[str, Any]:
        """Into a freshly made peer, task and method state; returns what the loop gave."""
        path = self._path(step)
        try:
            content = torch.load(path, map_location=peer.x.device, weights_only=True)
        except (OSError, RuntimeError) as error:
            raise TrainingError(
                f"{path}: cannot read this checkpoint: {error}", hint="start the cell afresh"
            ) from error
        if content["x"].shape != peer.x.shape or (content["momentum"] is None) != (peer.optimiser.momentum is None):
            raise TrainingError(
                f"{path} was made with another model or other training options", hint="start the cell afresh"
            )
        peer.x.copy_(content["x"])
        if peer.optimiser.momentum is not None:
            peer.optimiser.momentum.copy_(content["momentum"])
        if task.module is not None:
            for buffer, saved in zip(task.module.buffers(), content["buffers"], strict=True):
                buffer.copy_(saved)
        if isinstance(task, Remembering):
            task.load_state(content["task"])
        method_state.load(state, content["method"])
        return dict(content["loop"])

    def remove(self, workers: Iterable[int]) -> None:
        """Training is over: away with the checkpoints of these."""
        for rank in workers:
            self._delete(self._steps(), rank)
        with suppress(OSError):
            self._directory.rmdir()

    def _prune(self) -> None:
        newest = self.newest()
        self._delete((step for step in self._steps() if newest is not None and step < newest), self._rank)

    def _delete(self, steps: Iterable[int], rank: int) -> None:
        for step in steps:
            self._path(step).with_name(f"{rank}.pt").unlink(missing_ok=True)
            with suppress(OSError):  # the last one out removes the directory
                self._path(step).parent.rmdir()

    def _steps(self) -> list[int]:
        return [int(path.name) for path in self._directory.glob("[0-9]*")]

    def _path(self, step: int) -> Path:
        return self._directory / f"{step:08d}" / f"{self._rank}.pt"
