"""A worker's whole state on disk, so that a killed run goes on as if nothing had happened. The training loop calls it.

`<cell>/checkpoints/<step>/<rank>.pt`: a digest, then what torch saves. Workers write at their own pace and read only
what they wrote themselves. A run resumes from the newest step that all can read; each keeps the last two that all have,
so that one damaged file does not cost everything.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, Protocol, runtime_checkable

import torch

from testbed import __version__
from testbed.errors import TrainingError
from testbed.methods import checkpoint as method_state
from testbed.safe_files import DamagedError, open_regular, remove_tree
from testbed.tasks.base import Task
from testbed.worker.peer import WorkerPeer

KEPT = 2  # checkpoints that all workers have
MOST = 1 << 40  # bytes
ATTEMPTS = 100  # to open a file before another worker removes its empty directory
UNREADABLE = (OSError, DamagedError, UnpicklingError, EOFError, RuntimeError, ValueError, TypeError, KeyError)


@runtime_checkable
class Remembering(Protocol):
    """A task that carries something from step to step besides x and the buffers of its module."""

    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


class Checkpoints:
    """The checkpoints of one worker."""

    def __init__(self, cell: Path, rank: int, size: int) -> None:
        self._directory = cell / "checkpoints"
        self._rank = rank
        self._size = size

    def save(self, step: int, peer: WorkerPeer, task: Task, state: Any, loop: Mapping[str, Any]) -> None:
        """Save after `step` steps and method.finish. `loop` is what the training loop itself wants back."""
        written = io.BytesIO()
        torch.save(
            {
                "version": __version__,
                "step": step,
                "x": peer.x,
                "momentum": peer.optimiser.momentum,
                "method": method_state.save(state),
                "buffers": list(task.module.buffers()) if task.module is not None else [],
                "task": task.state() if isinstance(task, Remembering) else {},
                "loop": dict(loop),
            },
            written,
        )
        path = self._path(step)
        unfinished = path.with_suffix(".part")
        with _opened(unfinished) as file:
            file.write(hashlib.sha256(written.getbuffer()).digest())
            file.write(written.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
        complete = sorted(filter(self._complete, self._steps()))
        self._delete((one for one in self._steps() if one < min(complete[-KEPT:], default=0)), self._rank)

    def usable(self, device: torch.device | str = "cpu") -> dict[int, dict[str, Any]]:
        """Return this worker's valid checkpoints of this testbed, by step; anything else is ignored."""
        found = {}
        for step in self._steps():
            with suppress(*UNREADABLE):
                content = self._read(step, device)
                if (content["version"], content["step"]) == (__version__, step):
                    found[step] = content
        return found

    def _read(self, step: int, device: torch.device | str) -> dict[str, Any]:
        with os.fdopen(open_regular(self._path(step), most=MOST), "rb") as file:
            digest, rest = file.read(32), file.read()
        if hashlib.sha256(rest).digest() != digest:
            raise DamagedError(self._path(step), "it is not as it was written")
        content: dict[str, Any] = torch.load(io.BytesIO(rest), map_location=device, weights_only=True)
        return content

    def _complete(self, step: int) -> bool:
        """Whether all workers have one."""
        return sum(name.endswith(".pt") for name in _names(self._path(step).parent)) == self._size

    def load(self, content: Mapping[str, Any], peer: WorkerPeer, task: Task, state: Any) -> dict[str, Any]:
        """Load into a freshly made peer, task and method state; return what the loop gave."""
        if content["x"].shape != peer.x.shape or (content["momentum"] is None) != (peer.optimiser.momentum is None):
            words = f"the checkpoint of step {content['step']} was made with another model or other training options"
            raise TrainingError(words, hint="start the cell afresh")
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

    def forget(self, after: int) -> None:
        """Remove this worker's checkpoints of steps that are taken (again)."""
        self._delete((step for step in self._steps() if step > after), self._rank)

    def remove(self, workers: Iterable[int]) -> None:
        """Remove the checkpoints of these workers: training is over."""
        for rank in workers:
            self._delete(self._steps(), rank)
        with suppress(OSError):
            self._directory.rmdir()

    def _delete(self, steps: Iterable[int], rank: int) -> None:
        for step in steps:
            for suffix in ("pt", "part"):
                remove_tree(self._path(step).with_name(f"{rank}.{suffix}"))  # whatever it has become
            with suppress(OSError):  # the last one out removes the directory
                self._path(step).parent.rmdir()

    def _steps(self) -> list[int]:
        return [int(name) for name in _names(self._directory) if name.isdecimal()]

    def _path(self, step: int) -> Path:
        return self._directory / f"{step:08d}" / f"{self._rank}.pt"


def _names(directory: Path) -> list[str]:
    """List a directory that another worker may be removing."""
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _opened(file: Path) -> BinaryIO:
    """Open a new file in a directory that another worker may have removed just now, as it was empty."""
    for _ in range(ATTEMPTS):
        with suppress(FileNotFoundError):
            file.parent.mkdir(parents=True, exist_ok=True)
            return file.open("wb")
    return file.open("wb")
