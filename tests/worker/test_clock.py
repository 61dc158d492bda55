"""The training clock starts when told and stands still when asked; it knows how long a worker had no processor."""

import multiprocessing
import os
import time
from time import monotonic_ns

import pytest

from testbed.worker import clock as clocks
from testbed.worker.clock import Clock
from testbed.worker.cpu_wait import CpuWait
from testbed.worker.trace import CODES, Trace


def test_starts_at_the_common_moment_and_goes_on_from_a_checkpoint():
    clock = Clock(Trace(0))
    at = monotonic_ns() + 20_000_000
    clock.start(at, elapsed_ns=5_000_000_000)
    assert monotonic_ns() >= at
    assert clock.now_ns() >= 5_000_000_000


def test_pauses_do_not_count():
    trace = Trace(0)
    clock = Clock(trace)
    began = monotonic_ns()
    clock.start(began)
    with clock.paused():
        time.sleep(0.05)
    assert clock.now_ns() <= monotonic_ns() - began - 50_000_000
    (span,) = trace.spans()
    assert span["kind"] == CODES["eval"]
    assert span["end_ns"] - span["start_ns"] >= 50_000_000


def test_in_slow_motion_it_shows_scenario_time(monkeypatch):
    real = monotonic_ns()
    monkeypatch.setattr(clocks, "monotonic_ns", lambda: real)
    clock = Clock(Trace(0), slow_motion=4.0)
    clock.start(real, elapsed_ns=1_000)
    assert clock.now_ns() == 1_000
    real += 8_000
    assert clock.now_ns() == 3_000
    with clock.paused():
        real += 400
    assert (clock.now_ns(), clock.standing_ns) == (3_000, 100 - 1_000)
    back = Clock(Trace(1), slow_motion=4.0)  # of a worker that comes back
    back.start(real - 8_400, -clock.standing_ns)
    assert back.now_ns() == clock.now_ns()


def spin(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def share_one_processor(connection) -> None:
    """Half of the time is another's: with and without counting it."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    other = multiprocessing.get_context("fork").Process(target=spin, args=(60.0,))
    other.start()
    try:
        queueing = CpuWait()
        with queueing.uncounted():
            spin(0.1)
        alone = queueing.ns
        spin(0.2)
        connection.send((queueing.known, alone, queueing.ns))
    finally:
        other.kill()
        other.join()


def test_waiting_for_a_processor_is_counted_where_it_matters():
    ours, theirs = multiprocessing.get_context("fork").Pipe()
    process = multiprocessing.get_context("fork").Process(target=share_one_processor, args=(theirs,))
    process.start()
    known, uncounted, counted = ours.recv()
    process.join()
    if not known:
        pytest.skip("this kernel keeps no account of it")
    assert counted > 20_000_000, "two share one processor: one of them waits about as long as it runs"
    assert uncounted < counted / 2


def test_a_kernel_without_such_an_account(monkeypatch):
    def missing(*_: object) -> int:
        raise FileNotFoundError

    monkeypatch.setattr(os, "open", missing)
    queueing = CpuWait()
    with queueing.uncounted():
        pass
    assert (queueing.known, queueing.ns) == (False, 0)
