"""The numbers of a cell from what its workers reported, with two workers and two steps made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from testbed.plan.make import plan
from testbed.results.cell import Pacing, Target
from testbed.results.digest import bytes_handed_over, digest, least
from testbed.scenario.load import loads
from testbed.worker.result import JobResult
from testbed.worker.snapshots import Metric
from testbed.worker.trace import CODES, Trace

MS = 1_000_000
NETWORK = plan(
    loads("workers: 2\nmethods: [dpsgd]\nnetwork: {topology: chain, link: {latency: 10ms, rate: 8mbit}}", "net.yaml")
).network


def spans(*rows: tuple[str, int, int, int, int]) -> Any:
    """(kind, peer, start, end in ms, bytes)."""
    trace = Trace(0)
    for kind, peer, start, end, count in rows:
        wire = count + 96 if kind == "send" else count
        trace.add(CODES[kind], peer, start * MS, end * MS, count, wire)
    return trace.spans()


def result(rank: int, *, seconds: float = 0.2, metrics: Any = (), rows: Any = (), **values: Any) -> JobResult:
    chosen = {
        "rank": rank,
        "steps": 2,
        "seconds": seconds,
        "bytes_sent": {1 - rank: 4000},
        "tcp_bytes_sent": 0,
        "overruns": 1,
        "decided": {"gamma": 0.5},
        "warnings": ["slow"] if rank else [],
        "metrics": list(metrics),
        "spans": spans(*rows),
        "x": np.zeros(1, dtype=np.float32),
    }
    return JobResult(**{**chosen, **values})


STEP = [
    ("compute", -1, 0, 40, 0),
    ("compress", -1, 40, 42, 0),
    ("send", 1, 42, 70, 2000),
    ("wait", 1, 42, 72, 2000),
    ("decompress", -1, 72, 73, 0),
    ("mix", -1, 73, 74, 0),
    ("update", -1, 74, 75, 0),
]
ROWS = [(kind, peer, start + shift, end + shift, count) for shift in (0, 80) for kind, peer, start, end, count in STEP]
BACK = [(kind, 0 if peer == 1 else peer, *times) for kind, peer, *times in ROWS]  # of the other worker


def test_parts_add_up_to_the_time_of_a_step():
    found = digest([result(0, rows=ROWS), result(1, rows=BACK)], NETWORK, None)
    assert found.step_s == pytest.approx(0.1)
    parts = found.parts_s
    assert parts == pytest.approx({"compute": 0.040, "codec": 0.003, "wait": 0.030, "mix": 0.002, "other": 0.025})
    assert sum(parts.values()) == pytest.approx(found.step_s)


def test_the_least_that_a_step_needs():
    """Messages behind the gradient cost what they take longer than it; else all of it."""
    parts = {"compute": 0.04, "codec": 0.003}
    assert least(parts, 0.1, overlaps=True) == pytest.approx(0.103)
    assert least(parts, 0.01, overlaps=True) == pytest.approx(0.043)
    assert least(parts, 0.1, overlaps=False) == pytest.approx(0.143)
    overlapping = [result(rank, rows=rows, overlaps=True) for rank, rows in ((0, ROWS), (1, BACK))]
    found = digest(overlapping, NETWORK, None)
    assert found.least_s == pytest.approx(max(0.040, found.floor_s) + 0.003)


def test_rates_at_which_messages_were_paced():
    def pacing(*found: dict[int, float | None]) -> Any:
        results = [
            result(rank, rows=rows, paced=one) for rank, rows, one in zip((0, 1), (ROWS, BACK), found, strict=True)
        ]
        return digest(results, NETWORK, None).pacing

    assert pacing({}, {}) is None, "nobody looked"
    assert pacing({1: None}, {0: None}) == Pacing(2, 0.0)
    assert pacing({1: 5e5, 2: None}, {0: 1e6, 2: 8e5}) == Pacing(4, 0.75, 5e5, 8e5, 1e6)


def test_a_worker_that_came_back_counts_for_the_steps_it_was_there():
    once = spans(*BACK[: len(STEP)], ("rejoin", -1, 0, 9, 0), ("send", 0, 1, 8, 10**9)).copy()
    once["step"] = 1
    late = result(1, spans=once, bytes_sent={0: 5000})
    found = digest([result(0, rows=ROWS), late], NETWORK, None)
    assert found.parts_s["compute"] == pytest.approx(0.040)
    assert found.bytes_per_step == (4000 + 5000) / 3, "by all steps that workers took: one step is not half of it"
    assert found.floor_s < 0.02, "what brought it back is no message of a step"


def test_after_an_interruption_bytes_and_parts_are_of_the_steps_since():
    rows = [spans(*some[: len(STEP)]).copy() for some in (ROWS, BACK)]
    for some in rows:
        some["step"] = 1
    again = [result(rank, spans=some, bytes_sent={1 - rank: 2000}) for rank, some in enumerate(rows)]
    found = digest(again, NETWORK, None)
    whole = digest([result(0, rows=ROWS), result(1, rows=BACK)], NETWORK, None)
    assert (found.steps, found.step_s) == (whole.steps, whole.step_s), "the clock went on"
    for key in ("bytes_per_step", "floor_s", "parts_s", "exchange_s"):
        assert getattr(found, key) == pytest.approx(getattr(whole, key)), key


def test_the_slowest_worker_sets_the_time_and_means_are_over_workers():
    found = digest([result(0, seconds=0.1), result(1, seconds=0.3, bytes_sent={0: 2000})], NETWORK, None)
    assert found.seconds == 0.3
    assert found.bytes_per_step == (4000 + 2000) / 2 / 2
    assert (found.overruns, found.warnings, found.decided) == (2, ("slow",), {"gamma": 0.5})


def test_the_floor_of_one_message_per_step():
    """10 ms of latency, 2000 bytes at a byte per microsecond."""
    assert digest([result(0, rows=ROWS), result(1)], NETWORK, None).floor_s == pytest.approx(0.012)


def test_the_floor_of_a_ring_whose_rounds_overlap():
    """The longer of both: 2 rounds of 10 ms, or 10 ms and 30 000 bytes a step."""
    one, other = (result(rank, bytes_sent={1 - rank: 60_000}, pipelined=True) for rank in (0, 1))
    assert digest([one, other], NETWORK, None).floor_s == pytest.approx(0.010 + 0.030)
    one, other = (result(rank, bytes_sent={1 - rank: 2_000}, pipelined=True) for rank in (0, 1))
    assert digest([one, other], NETWORK, None).floor_s == pytest.approx(0.020)


def test_the_floor_of_an_all_reduce():
    """Two workers: 2 rounds of half of 8000 bytes each, so each sends 8000 per step."""
    reduced = [result(rank, bytes_sent={-1: 16_000}) for rank in (0, 1)]
    assert digest(reduced, NETWORK, None).floor_s == pytest.approx(2 * 0.010)


def test_the_floor_of_an_all_reduce_in_every_second_step():
    """Half the rounds and bytes of one in every step."""
    wait = [("wait", -1, 0, 30, 8000)]
    reduced = [result(rank, rows=wait, bytes_sent={-1: 8000}) for rank in (0, 1)]
    assert digest(reduced, NETWORK, None).floor_s == pytest.approx(2 * 0.010 / 2)


def test_a_worker_that_sends_nothing_has_no_floor():
    assert digest([result(rank, bytes_sent={}) for rank in (0, 1)], NETWORK, None).floor_s == 0


def metrics(rank: int, accuracies: dict[int, float], seconds: float) -> list[Metric]:
    return [Metric(rank, step, seconds * step, 100, "test_accuracy", value) for step, value in accuracies.items()]


def test_the_target_is_reached_when_the_mean_of_the_workers_is_there_and_the_last_of_them():
    results = [
        result(0, metrics=metrics(0, {0: 0.1, 1: 0.8, 2: 0.9}, 1.0)),
        result(1, metrics=metrics(1, {0: 0.1, 1: 0.6, 2: 0.9}, 1.5)),
    ]
    assert digest(results, NETWORK, Target("accuracy", 0.65)).target == Target("accuracy", 0.65, step=1, seconds=1.5)
    never = digest(results, NETWORK, Target("accuracy", 0.95)).target
    assert never == Target("accuracy", 0.95)
    assert digest(results, NETWORK, None).target is None


def test_a_loss_is_reached_from_above():
    rows = [Metric(0, step, float(step), 0, "test_loss", value) for step, value in ((1, 0.5), (2, 0.2))]
    assert digest([result(0, metrics=rows), result(1)], NETWORK, Target("loss", 0.25)).target.step == 2


def test_final_values_of_own_models_and_of_their_average():
    rows = [
        Metric(0, 2, 1.0, 0, "test_accuracy", 0.8),
        Metric(0, 1, 1.0, 0, "test_accuracy", 0.1),
        Metric(-1, 2, 1.0, 0, "test_accuracy", 0.95),
        Metric(-1, 2, 1.0, 0, "consensus", 0.01),
    ]
    other = [Metric(1, 2, 1.0, 0, "test_accuracy", 0.6)]
    final = digest([result(0, metrics=rows), result(1, metrics=other)], NETWORK, None).final
    assert final == {"test_accuracy": pytest.approx(0.7), "average_test_accuracy": 0.95, "consensus": 0.01}


def test_bytes_of_messages_with_what_gloo_adds():
    """Two messages with their headers, a notice for each one received, and what went before training."""
    one = result(0, rows=ROWS, tcp_bytes_before=500)
    assert bytes_handed_over(one, 2) == 2 * (2000 + 96) + 2 * 48 + 500


def test_bytes_of_a_stock_all_reduce():
    one = result(0, bytes_sent={-1: 3000}, rows=[("wait", -1, 0, 1, 3000)])
    assert bytes_handed_over(one, 4) == 3000 + 4 * 3 * (96 + 48)


def test_bytes_that_only_the_kernel_counted():
    """DDP sends by itself: no span tells of it."""
    assert bytes_handed_over(result(0, bytes_sent={-1: 7000}, rows=[("compute", -1, 0, 1, 0)]), 4) == 7000
