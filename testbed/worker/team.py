"""Which workers of a cell have reported, which are lost, when it is over and why: one policy for all runtimes.

It does no I/O. The process that runs the workers reports what it saw and when (`ended`, `returned`), and asks what
follows from it (`over`, `wait_at_most`, `may_return`, `failure`). Times are seconds on the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.errors import TestbedError, WorkerDiedError
from testbed.worker.transport import ALL, PeerLostError

GRACE = 2.0  # seconds for the other workers to say what they know after the first has failed

MayLose = Callable[[int, str], bool]


@dataclass
class Member:
    """What is known of one worker."""

    name: str
    error: TestbedError | None = None
    heard: float = 0.0  # when it was over; 0: not yet
    lost: bool = False  # it died, and the others go on


class Team:
    """The workers of one cell."""

    def __init__(self, names: Sequence[str], may_lose: MayLose | None = None) -> None:
        """`may_lose` is called with the number of a worker that died, and how: True lets the others go on."""
        self.members = [Member(name) for name in names]
        self._may_lose = may_lose
        self._end: float | None = None  # some time after the first failure

    def ended(self, rank: int, at: float, error: TestbedError | None = None) -> None:
        """Record that a worker is done, has failed, or has died (WorkerDiedError)."""
        member = self.members[rank]
        member.error, member.heard = error, at
        if isinstance(error, WorkerDiedError) and self._may_lose:
            member.lost = self._may_lose(rank, error.why)
        if error and not member.lost and self._end is None:
            self._end = at + GRACE

    def returned(self, rank: int) -> None:
        """Record that a lost worker was started again."""
        self.members[rank] = Member(self.members[rank].name)

    def may_return(self, rank: int) -> bool:
        """Whether starting it again is of any use: the others go on without it, and none has failed."""
        return self.members[rank].lost and self._end is None

    @property
    def working(self) -> list[int]:
        """Return the workers that have not reported yet."""
        return [rank for rank, member in enumerate(self.members) if not member.heard]

    def over(self, now: float) -> bool:
        """Whether all have ended, or one has failed and the others had time to report."""
        return not self.working or (self._end is not None and now >= self._end)

    def wait_at_most(self, now: float, seconds: float | None = None) -> float | None:
        """Return how long to wait for news at most; None: for ever."""
        times = (seconds, None if self._end is None else max(0.0, self._end - now))
        return min((time for time in times if time is not None), default=None)

    def failure(self) -> TestbedError | None:
        """Return why the cell failed; None: it did not."""
        failed = [member for member in self.members if member.error and not member.lost]
        if not failed and all(member.lost for member in self.members):
            failed = [max(self.members, key=lambda member: member.heard)]  # the others could go on
        return self._explanation(failed) if failed else None

    def _explanation(self, failed: Sequence[Member]) -> TestbedError:
        """Return the failure that explains the others. A lost peer is how others notice a failure: the failure
        itself says more. Where there is only silence, the silent one is missed by those that wait for it, and they
        by others."""

        def explains(member: Member) -> tuple[int, float]:
            error = member.error
            if not isinstance(error, PeerLostError):
                return 0, member.heard
            missed_one_spoke = error.peer != ALL and self.members[error.peer].heard > 0
            return (2 if missed_one_spoke else 1), member.heard

        root = (failed[0] if len(failed) == 1 else min(failed, key=explains)).error  # alone: its peers may be elsewhere
        assert root is not None
        if isinstance(root, PeerLostError) and root.peer == ALL and self.working:
            root.miss(self.working, [self.members[rank].name for rank in self.working])
        return root
