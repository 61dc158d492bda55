"""Forked workers: results in order, the explaining error first, nobody left behind."""

import contextlib
import os
import pickle
import signal
import sys
import threading
import time
from functools import partial

import pytest

from testbed.errors import MissingError, TrainingError
from testbed.network.agent import allow_descriptors
from testbed.network.processes import descendants
from testbed.runtime.pidspace import PidSpaces
from testbed.worker import forked as crew_module
from testbed.worker.forked import ForkedWorkers, run_forked
from testbed.worker.transport import PeerLostError


def test_results_come_in_the_order_of_the_calls():
    def work(rank: int) -> tuple[int, int]:
        time.sleep(0.02 * (3 - rank))
        return rank, os.getpid()

    results = run_forked([partial(work, rank) for rank in range(4)])
    assert [rank for rank, _ in results] == [0, 1, 2, 3]
    assert len({pid for _, pid in results} | {os.getpid()}) == 5


def test_workers_start_where_many_descriptors_are_open():
    """As beside some hundred others: the parent's end of a pipe, and the process's, have high numbers."""
    allow_descriptors(2500)
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1200)]
    try:
        assert run_forked([os.getpid, os.getpid])
    finally:
        for descriptor in taken:
            os.close(descriptor)


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


class _Bomb:
    """Unpickled, it would do something here."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def untrusted(calls, **options):
    with ForkedWorkers(calls, trusted=False, **options) as crew:
        while not crew.over:
            crew.wait()
    return crew.results()


def report_of(content: bytes) -> None:
    """In a worker: say this instead of what it should."""
    os.write(crew_module._kept[0], content)


def test_nothing_of_an_untrusted_worker_is_unpickled(tmp_path):
    bomb = pickle.dumps(_Bomb(str(tmp_path / "gone off")))
    for content in (bomb, pickle.dumps((None, _Bomb(str(tmp_path / "gone off"))))):

        def work(content=content) -> None:
            report_of(len(content).to_bytes(8, sys.byteorder) + content)
            time.sleep(1000)

        with pytest.raises(TrainingError, match="w0 reported something that makes no sense"):
            untrusted([work])
    assert not (tmp_path / "gone off").exists()


@pytest.mark.parametrize("length", [-1, 1 << 40])
def test_reports_of_untrusted_workers_are_bounded(length):
    def work() -> None:
        report_of(length.to_bytes(8, sys.byteorder, signed=True))
        with contextlib.suppress(BrokenPipeError):
            while True:
                report_of(b"x" * 65536)

    with pytest.raises(TrainingError, match="w0 reported something that makes no sense"):
        untrusted([work])


def test_half_a_report_keeps_nobody_waiting():
    def work(rank: int) -> None:
        if rank == 0:
            report_of((100).to_bytes(8, sys.byteorder) + b"half")
            time.sleep(1000)
        raise TrainingError("no")

    with pytest.raises(TrainingError, match="w1: no"):
        untrusted([partial(work, rank) for rank in range(2)])


def test_one_that_closes_its_line_is_not_taken_for_dead():
    def work() -> None:
        os.close(crew_module._kept[0])
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingError, match="w0 was killed by SIGKILL"):
        untrusted([work])


def test_a_death_is_noticed_though_what_it_started_lives():
    def work() -> None:
        if os.fork() == 0:
            time.sleep(1000)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(TrainingError, match="w0 was killed by SIGKILL"):
        untrusted([work], surroundings=PidSpaces())


def test_surroundings_end_with_the_worker():
    """What a worker has started is in its process-id namespace, and sees nobody outside."""

    def work() -> None:
        if os.fork() == 0:
            time.sleep(1000)
        with pytest.raises(ProcessLookupError):
            os.kill(outside, 0)
        assert os.getpid() < 10

    outside = os.getpid()
    before = descendants(os.getpid())
    untrusted([work], surroundings=PidSpaces())
    assert descendants(os.getpid()) == before
