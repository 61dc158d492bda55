"""How long exchanges took, from traces made by hand: three workers, times in milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from testbed.results import exchanges
from testbed.results.exchanges import messages
from testbed.worker.result import JobResult
from testbed.worker.trace import CODES, Trace

MS = 1_000_000


def result(rank: int, *rows: tuple[str, int, int, float, float], steps: int = 1) -> JobResult:
    """(kind, step, peer, start, end in ms)."""
    trace = Trace(rank)
    for kind, step, peer, start, end in rows:
        trace.step = step
        trace.add(CODES[kind], peer, round(start * MS), round(end * MS), 100, 100)
    values: dict[str, Any] = {"metrics": [], "spans": trace.spans(), "x": np.zeros(1, np.float32), "bytes_sent": {}}
    return JobResult(
        rank=rank, steps=steps, seconds=1.0, tcp_bytes_sent=0, overruns=0, decided={}, warnings=[], **values
    )


def exchange(*results: JobResult, rounds: float = 1, among: Any = None, pipelined: bool = False) -> float | None:
    found = exchanges.exchange(results, rounds, among, pipelined=pipelined)
    return None if found is None else found.seconds


def test_a_message_takes_from_its_sender_s_hand_to_its_arrival():
    """Where its receiver looked for it by then. The other way, it was there before anybody looked."""
    one = result(0, ("send", 0, 1, 0, 3), ("receive", 0, 1, 0, 17))
    other = result(1, ("send", 0, 0, 10, 12), ("receive", 0, 0, 10, 11))
    assert exchange(one, other) == pytest.approx(0.007)


def test_the_slowest_neighbour_counts_and_rounds_add_up():
    arrivals = ((1, 0, 5), (2, 0, 9), (1, 10, 14), (2, 10, 12))
    one = result(0, *(("receive", 0, peer, start, end) for peer, start, end in arrivals))
    others = [result(peer, ("send", 0, 0, 0, 1), ("send", 0, 0, 10, 11)) for peer in (1, 2)]
    assert exchange(one, *others, rounds=2) == pytest.approx(0.009 + 0.004)


def test_what_is_left_over_at_the_end_is_no_second_round():
    """Where an exchange is under way between two steps, the last one has two."""
    sends = [("send", step, 0, at, at + 1) for step, at in ((1, 0), (2, 10), (2, 20))]
    arrivals = [("receive", step, 1, at, at + 4) for step, at in ((1, 0), (2, 10), (2, 20))]
    assert exchange(result(0, *arrivals), result(1, *sends)) == pytest.approx(0.004)


def test_rounds_of_a_ring_overlap():
    sends = [("send", 0, 0, 2 * number, 2 * number + 1) for number in range(8)]
    arrivals = [("wait", 0, 1, 0, 2 * number + 5) for number in range(8)]
    assert exchange(result(0, *arrivals), result(1, *sends), rounds=8, pipelined=True) == pytest.approx(0.019)


def test_an_all_reduce_is_its_wait_and_not_all_methods_reduce_in_every_step():
    waits = [[("wait", 0, -1, 0, 4 + rank), ("wait", 2, -1, 9, 12 + rank)] for rank in (0, 1)]
    often, rarely = ([result(rank, *waits[rank], steps=steps) for rank in (0, 1)] for steps in (2, 8))
    assert exchange(*often, rounds=0) == pytest.approx(0.0045)  # 5 and 4 ms, as the slower worker waited
    assert exchange(*rarely, rounds=0) == pytest.approx(0.0045 / 4), "per step, as its floor is"


def test_steps_that_exchange_nothing_count():
    """As they do in the floor: here there are three for each that does."""
    one = result(0, ("receive", 3, 1, 0, 8), steps=4)
    assert exchange(one, result(1, ("send", 3, 0, 0, 1), steps=4), rounds=0.25) == pytest.approx(0.002)


def test_the_messages_that_set_the_pace_count():
    """Those of the floor: a short way to one worker does not make the long way to another shorter."""
    near, far = result(0, ("receive", 0, 2, 0, 2)), result(1, ("receive", 0, 2, 0, 40))
    both = result(2, ("send", 0, 0, 0, 1), ("send", 0, 1, 0, 1))
    among = pd.DataFrame([(0, 2, 1)], columns=["step", "source", "target"])
    assert exchange(near, far, both) == pytest.approx(0.040)
    assert exchange(near, far, both, among=among) == pytest.approx(0.040)
    elsewhere = pd.DataFrame([(0, 2, 0)], columns=["step", "source", "target"])
    assert exchange(near, far, both, among=elsewhere) == pytest.approx(0.002)


def test_a_step_waits_for_its_slowest_worker_and_the_median_step_counts():
    """Of nine steps one has a mishap; the spread says that there is one."""
    ends = [(10, 12 + step) if step else (10, 400) for step in range(9)]
    receivers = [result(0, *(("receive", step, 2, 0, near) for step, (near, _) in enumerate(ends)), steps=9)]
    receivers += [result(1, *(("receive", step, 2, 0, far) for step, (_, far) in enumerate(ends)), steps=9)]
    sender = result(2, *(("send", step, peer, 0, 1) for step in range(9) for peer in (0, 1)), steps=9)
    found = exchanges.exchange([*receivers, sender], 1)
    assert found is not None
    assert found.seconds == pytest.approx(0.017)
    assert found.spread == pytest.approx((0.2 * 0.400 + 0.8 * 0.020 - (0.8 * 0.014 + 0.2 * 0.013)) / 2, rel=0.05)


def test_what_traces_do_not_show_is_not_known():
    assert exchange(*(result(rank, ("compute", 0, -1, 0, 4)) for rank in (0, 1)), rounds=0) is None


def test_where_nothing_travels_meanwhile_waits_tell():
    """One after the other, but the worker looks for all of them from the first on."""
    sends = [("send", 0, 0, 1, 4)]
    one = result(0, ("wait", 0, 1, 0, 9), ("wait", 0, 2, 9, 12))
    assert exchange(one, result(1, *sends), result(2, *sends)) == pytest.approx(0.011)
    seen = result(0, ("wait", 0, 1, 0, 9), ("receive", 1, 1, 10, 16))
    both = result(1, ("send", 0, 0, 0, 4), ("send", 1, 0, 10, 12))
    assert exchange(seen, both) == pytest.approx(0.006), "only in the step that was watched"


def test_messages_are_those_known_at_both_ends():
    rows = [(0, "send", 0, 1), (0, "send", 0, 1), (1, "receive", 0, 0), (1, "receive", 1, 0), (0, "wait", 0, -1)]
    spans = pd.DataFrame([(worker, CODES[kind], step, peer) for worker, kind, step, peer in rows])
    found = messages(spans.set_axis(["worker", "kind", "step", "peer"], axis="columns"), "receive")
    assert found[["step", "source", "target", "nth", "sent", "came"]].to_numpy().tolist() == [[0, 0, 1, 0, 0, 2]]
