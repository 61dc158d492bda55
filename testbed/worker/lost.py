"""Which workers of a cell are lost, visible to all others: a small file for each, in a directory that workers can read
and not write: the controller must not follow a worker's links when writing, nor read a worker's words.

The process that runs the workers marks them. Workers ask before they go on without a peer: a broken connection alone
does not distinguish a death from a failure that must end the cell. A worker may be started again: its lives are counted
from 0, each can be lost, and it belongs to the cell again once it is marked as back. The controller reads all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep

from testbed.worker.job import Job
from testbed.worker.progress import Onlooker

POLL = 0.02  # seconds


@dataclass(frozen=True)
class WorkerFailure:
    """The end of one life of a worker."""

    rank: int
    why: str  # "was killed by SIGKILL"
    at: float  # seconds on the monotonic clock, when it was noticed
    step: int = 0  # in which it was then
    life: int = 0


class Lost:
    """All lost workers of one cell."""

    def __init__(self, news: Path) -> None:
        self._news = news

    def mark(self, rank: int, why: str, step: int = 0) -> None:
        """Mark this worker's present life as over, for good. Complete or not at all: no reader sees half a file."""
        life = sum(1 for _ in self._news.glob(f"lost.{rank}.*.json"))
        unfinished = self._news / f"lost.{rank}.part"
        unfinished.write_text(json.dumps(asdict(WorkerFailure(rank, why, monotonic(), step, life))))
        unfinished.rename(self._path(rank, life))

    def mark_back(self, rank: int, life: int) -> None:
        """Mark this worker as back: the others wait for it again unless this life is lost."""
        (self._news / f"back.{rank}.{life}").touch()

    def has(self, rank: int, within: float = 0.0) -> bool:
        """Whether this worker is lost; the news may take some seconds to come."""
        end = monotonic() + within
        while not self._path(rank, self._joined(rank)).exists():
            if monotonic() >= end:
                return False
            sleep(POLL)
        return True

    def ended(self, rank: int, life: int) -> bool:
        """Whether this life of a worker is over."""
        return self._path(rank, life).exists()

    def all(self) -> list[WorkerFailure]:
        """Return all failures, by rank and life."""
        found = [WorkerFailure(**json.loads(path.read_text())) for path in self._news.glob("lost.*.json")]
        return sorted(found, key=lambda loss: (loss.rank, loss.life))

    def ranks(self) -> frozenset[int]:
        """Return the workers that are lost now."""
        ever = {int(path.name.split(".")[1]) for path in self._news.glob("lost.*.json")}
        return frozenset(rank for rank in ever if self.has(rank))

    def clear(self) -> None:
        """Clear everything before a cell begins (again)."""
        for path in (*self._news.glob("lost.*.json"), *self._news.glob("back.*")):
            path.unlink()

    def _joined(self, rank: int) -> int:
        """Return the last life in which it belonged to the cell."""
        return max((int(path.name.split(".")[2]) for path in self._news.glob(f"back.{rank}.*")), default=0)

    def _path(self, rank: int, life: int) -> Path:
        return self._news / f"lost.{rank}.{life}.json"


def may_lose(job: Job) -> Callable[[int, str], bool] | None:
    """Decide whether a cell goes on without a worker that died. The others of a tolerant job are informed, and go on;
    not if it had not begun to train, since no worker has a connection to it yet."""
    if not job.tolerant or job.progress is None:
        return None
    lost, progress = Lost(job.news), Onlooker(Path(job.progress))
    lost.clear()

    def lose(rank: int, why: str) -> bool:
        where = progress.get(rank)
        if not where.start_ns:
            return False
        lost.mark(rank, why, where.step)
        return True

    return lose
