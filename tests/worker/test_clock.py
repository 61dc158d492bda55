"""The training clock starts when told and stands still when asked."""

import time
from time import monotonic_ns

from testbed.worker.clock import Clock
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
