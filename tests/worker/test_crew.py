"""Forked workers: results in order, the explaining error first, nobody left behind."""

import os
import signal
import threading
import time
from functools import partial

import pytest

from testbed.errors import MissingError, TrainingError
from testbed.worker.crew import run_forked
from testbed.worker.transport import PeerLostError


def test_results_come_in_the_order_of_the_calls():
    def work(rank: int) -> tuple[int, int]:
        time.sleep(0.02 * (3 - rank))
        return rank, os.getpid()

    results = run_forked([partial(work, rank) for rank in range(4)])
    assert [rank for rank, _ in results] == [0, 1, 2, 3]
    assert len({pid for _, pid in results} | {os.getpid()}) == 5


def test_large_results_fit():
    assert [len(content) for content in run_forked([lambda: b"x" * 10_000_000] * 2)] == [10_000_000] * 2


def test_our_errors_keep_kind_and_hint():
    def work() -> None:
        raise MissingError("no such thing", hint="get one")

    with pytest.raises(MissingError, match=r"^w0: no such thing$") as caught:
        run_forked([work])
    assert caught.value.hint == "get one"


def test_other_errors_name_the_worker(capfd):
    def work(rank: int) -> float:
        return 1 / (1 - rank)

    with pytest.raises(TrainingError, match="w1: ZeroDivisionError: division by zero"):
        run_forked([partial(work, rank) for rank in range(2)])
    assert "Traceback" in capfd.readouterr().err


def test_the_cause_is_raised_rather_than_what_others_noticed_of_it():
    def work(rank: int) -> None:
        if rank == 2:
            time.sleep(0.3)
            raise TrainingError("the cause")
        raise PeerLostError("a consequence", peer=2, step=0)

    with pytest.raises(TrainingError, match="the cause"):
        run_forked([partial(work, rank) for rank in range(3)])


def test_a_killed_worker_is_the_cause():
    def work(rank: int) -> None:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        raise PeerLostError("a consequence", peer=1, step=0)

    with pytest.raises(TrainingError, match="w1 was killed by SIGKILL"):
        run_forked([partial(work, rank) for rank in range(2)])


def test_where_all_are_lost_the_last_is_the_cause():
    def work(rank: int) -> None:
        time.sleep(0.5 if rank == 0 else 0.0)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingError, match="w0 was killed by SIGKILL"):
        run_forked([partial(work, rank) for rank in range(3)], may_lose=lambda rank, why: True)


def test_nobody_is_left_behind_when_one_fails():
    pids: list[int] = []

    def work(rank: int) -> None:
        if rank == 0:
            raise TrainingError("no")
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(1000)

    with pytest.raises(TrainingError, match="no"):
        run_forked([partial(work, rank) for rank in range(3)], started=pids.extend)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_forking_beside_other_threads_is_refused():
    go = threading.Event()
    thread = threading.Thread(target=go.wait)
    thread.start()
    try:
        with pytest.raises(TrainingError, match="unsafe once this process has threads"):
            run_forked([lambda: 1])
    finally:
        go.set()
        thread.join()


def _misses_one_that_is_elsewhere():
    raise PeerLostError("nothing from w3", peer=3, step=7)


def test_one_alone_may_miss_peers_that_are_not_of_its_crew():
    with pytest.raises(PeerLostError, match="nothing from w3"):
        run_forked([_misses_one_that_is_elsewhere], ["w0"])
