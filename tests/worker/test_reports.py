"""Workers' last words: errors come through as they were, everything else is refused."""

import pytest

from testbed.errors import DivergedError, MissingError, StorageError, TrainingError, WorkerDiedError
from testbed.worker import reports
from testbed.worker.transport import LeftBehindError, PeerLostError


def silence() -> PeerLostError:
    error = PeerLostError("nothing from the others", peer=-1, step=3)
    error.miss([0, 2], ["w0", "w2"])
    return error


@pytest.mark.parametrize(
    "error",
    [
        TrainingError("no", hint="yes"),
        StorageError("full"),
        LeftBehindError("w1: late", worker="w1", why="late"),
        WorkerDiedError("w1 was killed", worker="w1", why="was killed"),
        silence(),
        DivergedError("NaN", step=7, worker="w1"),
        PeerLostError("nothing from w2", hint="look", peer=2, step=5),
        PeerLostError("nothing from the others", peer=-1, step=0),
    ],
)
def test_errors_come_through(error):
    again = reports.failure(reports.of(error), 4)
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))


def test_success_comes_through():
    assert reports.failure(reports.of(None), 4) is None


def test_other_errors_of_ours_are_training_errors():
    assert type(reports.failure(reports.of(MissingError("no data")), 4)) is TrainingError


def test_long_words_are_cut():
    assert len(str(reports.failure(reports.of(TrainingError("x" * 100_000)), 4))) == reports.LONGEST


WHOLE = reports.of(TrainingError("no"))["failure"]


@pytest.mark.parametrize(
    "report",
    [
        None,
        [],
        {},
        {"failure": None, "more": 1},
        {"failure": "no"},
        {"failure": {}},
        {"failure": {**WHOLE, "more": 1}},
        {"failure": {**WHOLE, "message": 5}},
        {"failure": {**WHOLE, "message": "x" * 5000}},
        {"failure": {**WHOLE, "hint": ["x"]}},
        {"failure": {**WHOLE, "kind": "diverged", "worker": {"a": 1}}},
        {"failure": {**WHOLE, "kind": "died", "why": 5}},
        {"failure": {**WHOLE, "kind": "peer_lost", "silent": "w1"}},
        {"failure": {**WHOLE, "kind": "peer_lost", "silent": list(range(9))}},
    ],
)
def test_anything_else_is_no_report(report):
    with pytest.raises(ValueError, match="report"):
        reports.failure(report, 4)


def test_workers_that_do_not_exist_are_not_blamed():
    told = {"failure": {**WHOLE, "kind": "peer_lost", "peer": 99, "step": -4, "silent": [1, 7]}}
    error = reports.failure(told, 4)
    assert isinstance(error, PeerLostError)
    assert (error.peer, error.step, error.silent) == (-1, 0, (1,))
