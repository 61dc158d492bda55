"""Which workers of a cell are lost for good, where all others can see it: a small file each in the cell's directory.

Whoever runs the workers marks them. Workers ask before they go on without a peer: a broken connection alone does not
tell a death from a failure that must end the cell. The controller reads when and why.
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
    """One worker that is no more."""

    rank: int
    why: str  # "was killed by SIGKILL"
    at: float  # seconds on the monotonic clock, when it was noticed


class Lost:
    """All that are lost in one cell."""

    def __init__(self, cell: Path) -> None:
        self._cell = cell

    def mark(self, rank: int, why: str) -> None:
        """For good. Complete or not at all, so that nobody reads half a file."""
        unfinished = self._cell / f"lost.{rank}.part"
        unfinished.write_text(json.dumps(asdict(Loss(rank, why, monotonic()))))
        unfinished.rename(self._path(rank))

    def has(self, rank: int, within: float = 0.0) -> bool:
        """Whether this worker is lost; the news may take some seconds to come."""
        end = monotonic() + within
        while not self._path(rank).exists():
            if monotonic() >= end:
                return False
            sleep(POLL)
        return True

    def all(self) -> list[Loss]:
        """By rank."""
        found = [Loss(**json.loads(path.read_text())) for path in self._cell.glob("lost.*.json")]
        return sorted(found, key=lambda loss: loss.rank)

    def ranks(self) -> frozenset[int]:
        return frozenset(int(path.name.split(".")[1]) for path in self._cell.glob("lost.*.json"))

    def clear(self) -> None:
        """Before a cell begins (again)."""
        for path in self._cell.glob("lost.*.json"):
            path.unlink()

    def _path(self, rank: int) -> Path:
        return self._cell / f"lost.{rank}.json"


def may_lose(job: Job) -> Callable[[int, str], bool] | None:
    """What `run_forked` asks when a worker died. The others of a tolerant job are told, and go on; not if it had not
    begun to train, since nobody has a connection to it yet."""
    if not job.tolerant or job.progress is None:
        return None
    lost, progress = Lost(Path(job.directory)), Progress(Path(job.progress), job.size)
    lost.clear()

    def lose(rank: int, why: str) -> bool:
        if not progress.get(rank).start_ns:
            return False
        lost.mark(rank, why)
        return True

    return lose
