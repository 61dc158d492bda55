"""The policy of supervision alone: events and times in, decisions out."""

from __future__ import annotations

from testbed.errors import TrainingError, WorkerDiedError
from testbed.worker.team import GRACE, Team
from testbed.worker.transport import ALL, LeftBehindError, PeerLostError

NAMES = ("w0", "w1", "w2")


def death(worker: str) -> WorkerDiedError:
    return WorkerDiedError(f"{worker} was killed", worker=worker, why="was killed")


def tolerant(lost: list[tuple[int, str]]) -> Team:
    def lose(rank: int, why: str) -> bool:
        lost.append((rank, why))
        return True

    return Team(NAMES, lose)


def test_it_is_over_when_all_are_done():
    team = Team(NAMES)
    for rank in (2, 0):
        team.ended(rank, 10.0 + rank)
    assert (team.working, team.over(100.0), team.wait_at_most(100.0)) == ([1], False, None)
    team.ended(1, 20.0)
    assert team.over(20.0)
    assert team.failure() is None


def test_after_a_failure_the_others_have_some_time_to_speak():
    team = Team(NAMES)
    team.ended(0, 10.0, TrainingError("no"))
    assert not team.over(10.0 + GRACE / 2)
    assert team.wait_at_most(11.0, 50.0) == GRACE - 1.0
    assert team.wait_at_most(11.0, 0.5) == 0.5
    team.ended(1, 11.0, TrainingError("later"))
    assert team.over(10.0 + GRACE), "the first failure's time counts"
    assert str(team.failure()) == "no"


def test_the_cause_is_told_rather_than_what_others_noticed_of_it():
    team = Team(NAMES)
    team.ended(0, 10.0, PeerLostError("w0: nothing from w2", peer=2))
    team.ended(2, 11.0, TrainingError("w2: the cause"))
    assert str(team.failure()) == "w2: the cause"


def test_where_there_is_only_silence_the_one_who_missed_the_silent_tells():
    team = Team(NAMES)
    team.ended(0, 10.0, PeerLostError("w0: nothing from w1", peer=1))
    team.ended(1, 11.0, PeerLostError("w1: nothing from w2", peer=2))
    assert str(team.failure()) == "w1: nothing from w2"
    team = Team(NAMES)
    team.ended(0, 10.0, PeerLostError("w0: nothing from the others", peer=ALL))
    team.ended(1, 10.0, PeerLostError("w1: nothing from the others", peer=ALL))
    failure = team.failure()
    assert isinstance(failure, PeerLostError)
    assert failure.silent == (2,)
    assert str(failure).endswith("not a word from w2")


def test_one_who_died_may_be_lost_and_come_back():
    lost: list[tuple[int, str]] = []
    team = tolerant(lost)
    team.ended(1, 10.0, death("w1"))
    assert lost == [(1, "was killed")]
    assert team.may_return(1)
    assert not team.may_return(0), "it is alive"
    assert team.wait_at_most(10.0) is None
    team.returned(1)
    assert team.working == [0, 1, 2]
    team.ended(1, 12.0, LeftBehindError("w1: too late", why="too late"))
    assert lost[1:] == [(1, "too late")]
    for rank in (0, 2):
        team.ended(rank, 13.0)
    assert team.over(13.0)
    assert team.failure() is None


def test_a_failure_is_no_death_and_nobody_returns_after_one():
    lost: list[tuple[int, str]] = []
    team = tolerant(lost)
    team.ended(1, 10.0, death("w1"))
    team.ended(0, 11.0, TrainingError("no"))
    assert lost == [(1, "was killed")]
    assert not team.may_return(1)
    assert str(team.failure()) == "no"


def test_where_all_are_lost_the_last_is_the_cause():
    team = tolerant([])
    for rank, at in ((1, 10.0), (2, 12.0), (0, 11.0)):
        team.ended(rank, at, death(NAMES[rank]))
    assert str(team.failure()) == "w2 was killed"
