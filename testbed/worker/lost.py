"""Which workers of a cell are lost, where all others can see it: a small file in the cell's directory for each.

Whoever runs the workers marks them. Workers ask before they go on without a peer: a broken connection alone does not
tell a death from a failure that must end the cell. A worker may be started again: its lives are counted from 0, each
can be lost, and it is one of the cell's workers again once it is marked as back. The controller reads all of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep

from testbed.worker.job import Job
from testbed.worker.progress import Progress

POLL = 0.02  # seconds


@dataclass(frozen=True)
class Loss:
    """One life of a worker that is no more."""

    rank: int
    why: str  # "was killed by SIGKILL"
    at: float  # seconds on the monotonic clock, when it was noticed
    step: int = 0  # in which it was then
    life: int = 0


class Lost:
    """All that are lost in one cell."""

    def __init__(self, cell: Path) -> None:
        self._cell = cell

    def mark(self, rank: int, why: str, step: int = 0) -> None:
        """This worker's present life is over, for good. Complete or not at all, so that nobody reads half a file."""
        life = sum(1 for _ in self._cell.glob(f"lost.{rank}.*.json"))
        unfinished = self._cell / f"lost.{rank}.part"
        unfinished.write_text(json.dumps(asdict(Loss(rank, why, monotonic(), step, life))))
        unfinished.rename(self._path(rank, life))

    def mark_back(self, rank: int, life: int) -> None:
        """From now on this worker is one of the others again: nobody goes on without it unless this life is lost."""
        (self._cell / f"back.{rank}.{life}").touch()

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

    def all(self) -> list[Loss]:
        """By rank and life."""
        found = [Loss(**json.loads(path.read_text())) for path in self._cell.glob("lost.*.json")]
        return sorted(found, key=lambda loss: (loss.rank, loss.life))

    def ranks(self) -> frozenset[int]:
        """Who is lost now."""
        ever = {int(path.name.split(".")[1]) for path in self._cell.glob("lost.*.json")}
        return frozenset(rank for rank in ever if self.has(rank))

    def clear(self) -> None:
        """Before a cell begins (again)."""
        for path in (*self._cell.glob("lost.*.json"), *self._cell.glob("back.*")):
            path.unlink()

    def _joined(self, rank: int) -> int:
        """The last life in which it was one of the cell's workers."""
        return max((int(path.name.split(".")[2]) for path in self._cell.glob(f"back.{rank}.*")), default=0)

    def _path(self, rank: int, life: int) -> Path:
        return self._cell / f"lost.{rank}.{life}.json"


def may_lose(job: Job) -> Callable[[int, str], bool] | None:
    """What a crew asks when a worker died. The others of a tolerant job are told, and go on; not if it had not begun
    to train, since nobody has a connection to it yet."""
    if not job.tolerant or job.progress is None:
        return None
    lost, progress = Lost(Path(job.directory)), Progress(Path(job.progress), job.size)
    lost.clear()

    def lose(rank: int, why: str) -> bool:
        where = progress.get(rank)
        if not where.start_ns:
            return False
        lost.mark(rank, why, where.step)
        return True

    return lose
