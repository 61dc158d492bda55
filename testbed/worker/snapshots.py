"""Models kept during training and evaluated after it, so that evaluation costs no training time and averages are cheap.

At an evaluation point a worker only writes its parameters to a file. When all have left the network, each evaluates its
own models and its share of the averaged ones. Files lie in the cell's directory; nothing crosses the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from testbed.tasks.base import Task
from testbed.worker.job import Job

AVERAGE = -1  # as a worker: the average of all models


@dataclass(frozen=True)
class Metric:
    """One number about one worker (or their average) after `step` steps."""

    worker: int
    step: int
    time_s: float  # on the training clock; of an average: when the last worker got there
    bytes_sent: int  # by this worker until then; of an average: by all
    metric: str
    value: float


class Snapshots:
    """One worker's models at the evaluation points; the other workers' files are beside its own."""

    def __init__(self, job: Job, task: Task) -> None:
        self._job = job
        self._task = task
        self._directory = Path(job.directory) / "snapshots"
        self._directory.mkdir(parents=True, exist_ok=True)
        self._steps: list[int] = []

    def keep(self, step: int, x: Tensor, time_ns: int, bytes_sent: int) -> None:
        parts = [x, *_buffers(self._task)]
        path = self._path(step, self._job.rank)
        unfinished = path.with_suffix(f"{path.suffix}.part")  # a worker that is killed leaves no half of one
        with unfinished.open("wb") as file:
            file.write(np.array([time_ns, bytes_sent], dtype=np.int64).tobytes())
            for part in parts:  # not tofile: it does not say why it failed
                file.write(part.detach().cpu().float().numpy().tobytes())
        unfinished.rename(path)
        self._steps.append(step)

    def resume(self, step: int) -> None:
        """Continue after the snapshots up to this step, kept before the run was interrupted."""
        kept = (int(path.name.split(".")[0]) for path in self._directory.glob(f"*.{self._job.rank}"))
        self._steps = sorted(number for number in kept if number <= step)

    def whole(self, step: int) -> bool:
        """Whether this worker has all snapshots it should have kept until then, to the last byte."""
        parts = [self._task.layout.numel, *(buffer.numel() for buffer in _buffers(self._task))]
        files = [self._path(point, self._job.rank) for point in self._points() if point <= step]
        return all(file.is_file() and file.stat().st_size == 16 + 4 * sum(parts) for file in files)

    def evaluate(self, workers: Sequence[int]) -> Iterator[Metric]:
        """Evaluate. These workers have all their snapshots; they share the averages among them."""
        own = set(self._steps)
        for index, step in enumerate(self._points()):
            if step in own and self._job.training.eval_models == "all":
                yield from self._evaluate_own(step)
            if workers[index % len(workers)] == self._job.rank:
                yield from self._evaluate_average(step)

    def remove(self, workers: Sequence[int]) -> None:
        """Remove the snapshots of these: all workers have evaluated."""
        for rank in workers:
            for path in (*self._directory.glob(f"*.{rank}"), *self._directory.glob(f"*.{rank}.part")):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # the last one out removes the directory
            self._directory.rmdir()

    def _evaluate_own(self, step: int) -> Iterator[Metric]:
        time_ns, bytes_sent, model = self._read(step, self._job.rank)
        for name, value in self._judge(model).items():
            yield Metric(self._job.rank, step, time_ns / 1e9, bytes_sent, f"test_{name}", value)

    def _points(self) -> list[int]:
        """Return the steps at which models are kept: the same for all, also if a worker was away at some of them."""
        every, last = self._job.training.eval_every, self._job.training.steps
        return [*range(0, last, every), last] if every else [last]

    def _evaluate_average(self, step: int) -> Iterator[Metric]:
        """Evaluate the averaged model, and the workers' distance from it: √(1/n Σ_i ‖x_i − x̄‖²). A lost worker counts
        as long as it was there."""
        ranks = [rank for rank in range(self._job.size) if self._path(step, rank).exists()]
        time_ns, bytes_sent, total = self._read(step, ranks[0])
        mean = total.astype(np.float64)
        for rank in ranks[1:]:
            time_here, bytes_here, model = self._read(step, rank)
            time_ns, bytes_sent = max(time_ns, time_here), bytes_sent + bytes_here
            mean += model
        mean /= len(ranks)
        numel = self._task.layout.numel
        squares = sum(float(np.square(self._read(step, rank)[2][:numel] - mean[:numel]).sum()) for rank in ranks)
        values = {"consensus": (squares / len(ranks)) ** 0.5}
        values |= {f"test_{name}": value for name, value in self._judge(mean.astype(np.float32)).items()}
        for name, value in values.items():
            yield Metric(AVERAGE, step, time_ns / 1e9, bytes_sent, name, value)

    def _judge(self, model: NDArray[np.float32]) -> dict[str, float]:
        if self._job.training.compute.mode == "emulated":
            return {}  # nothing was learned
        numel = self._task.layout.numel
        start = numel
        for buffer in _buffers(self._task):
            stop = start + buffer.numel()
            buffer.copy_(torch.from_numpy(model[start:stop]).view_as(buffer))
            start = stop
        return self._task.evaluate(torch.from_numpy(model[:numel]).to(self._job.device))

    def _read(self, step: int, rank: int) -> tuple[int, int, NDArray[np.float32]]:
        with self._path(step, rank).open("rb") as file:
            time_ns, bytes_sent = np.fromfile(file, dtype=np.int64, count=2)
            return int(time_ns), int(bytes_sent), np.fromfile(file, dtype=np.float32)

    def _path(self, step: int, rank: int) -> Path:
        return self._directory / f"{step:08d}.{rank}"


def _buffers(task: Task) -> list[Tensor]:
    """Return what a model learned outside its parameters: batch statistics, part of the evaluated model."""
    buffers = task.module.buffers() if task.module is not None else ()
    return [buffer for buffer in buffers if buffer.is_floating_point()]
