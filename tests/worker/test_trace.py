"""Spans: recorded in full, readable as a table."""

import time

import numpy as np
import pyarrow.parquet as parquet
import pytest

from testbed.errors import TrainingError
from testbed.worker.trace import CODES, Trace


def test_spans_nest_and_belong_to_their_step():
    trace = Trace(worker=3)
    with trace.span("mix"):
        trace.step = 5
        with trace.span("decompress"):
            time.sleep(0.002)
    inner, outer = trace.spans()
    assert (inner["kind"], outer["kind"]) == (CODES["decompress"], CODES["mix"])
    assert outer["start_ns"] <= inner["start_ns"] <= inner["end_ns"] <= outer["end_ns"]
    assert inner["end_ns"] - inner["start_ns"] >= 2_000_000
    assert inner["step"] == 5
    assert inner["peer"] == -1


def test_a_span_is_recorded_even_if_its_block_fails():
    trace = Trace(0)
    with pytest.raises(ValueError, match="inside"), trace.span("update"):
        raise ValueError("inside")
    assert len(trace) == 1


def test_the_table_says_everything(tmp_path):
    trace = Trace(worker=2)
    trace.step = 9
    trace.add(CODES["send"], peer=1, start_ns=10**18, end_ns=10**18 + 5, logical=3_000_000_000, wire=3_000_000_096)
    trace.write(tmp_path / "trace.parquet")
    (row,) = parquet.read_table(tmp_path / "trace.parquet").to_pylist()
    assert row == {
        "worker": 2,
        "kind": "send",
        "step": 9,
        "peer": 1,
        "start_ns": 10**18,
        "end_ns": 10**18 + 5,
        "bytes_logical": 3_000_000_000,
        "bytes_wire": 3_000_000_096,
    }


def test_many_spans_keep_their_order():
    trace = Trace(0)
    for number in range(10_000):
        trace.add(CODES["wait"], number % 7, number, number + 1)
    spans = trace.spans()
    assert np.array_equal(spans["start_ns"], np.arange(10_000))
    trace.add(CODES["wait"], 0, 0, 0)  # a copy: recording goes on while somebody looks
    assert len(spans) == 10_000


def test_an_empty_trace_is_a_table_too():
    assert Trace(0).to_arrow().num_rows == 0


def test_unknown_kinds_are_refused():
    with pytest.raises(TrainingError, match="'mixx'"):
        Trace(0).span("mixx")


def test_slow_motion_is_divided_out():
    trace, slow = Trace(0), Trace(0, slow_motion=2.5)
    for one in (trace, slow):
        one.add(CODES["mix"], 1, 1000, 2000, 3, 4)
    (span,), (slow_span,) = trace.spans(), slow.spans()
    assert (slow_span["start_ns"], slow_span["end_ns"]) == (400, 800)
    assert [slow_span[name] for name in ("kind", "step", "peer", "bytes_logical", "bytes_wire")] == [
        span[name] for name in ("kind", "step", "peer", "bytes_logical", "bytes_wire")
    ]
