"""Results as workers hand them over: what is true comes through, what a hostile worker makes of them is refused."""

import json
import os

import numpy as np
import pytest

from testbed.errors import TrainingError
from testbed.safe_files import DamagedError
from testbed.worker import parcel
from testbed.worker.result import JobResult, consistent, merge_unfinished, write_unfinished
from testbed.worker.snapshots import Metric
from testbed.worker.trace import CODES, SPAN

SIZE, STEPS = 3, 10


def result(**changed) -> JobResult:
    spans = np.array([(CODES["compute"], 2, -1, 100, 200, 0, 0), (CODES["send"], 2, 1, 150, 180, 8, 12)], dtype=SPAN)
    fields = {
        "rank": 1,
        "steps": STEPS,
        "seconds": 1.5,
        "bytes_sent": {0: 10, -1: 20},
        "tcp_bytes_sent": 40,
        "overruns": 0,
        "decided": {"gamma": 0.5},
        "warnings": ["one"],
        "metrics": [Metric(1, 3, 0.5, 10, "train_loss", float("nan")), Metric(-1, 10, 1.5, 30, "consensus", 0.1)],
        "spans": spans,
        "x": np.arange(4, dtype=np.float32),
        "queued": None,
    }
    return JobResult(**{**fields, **changed})


HONEST = {
    **{key: value for key, value in vars(result()).items() if key not in ("metrics", "spans", "x")},
    "metrics": [],
}


def read(directory) -> JobResult:
    return JobResult.read(directory, 1, size=SIZE, steps=STEPS)


def test_what_was_written_is_read(tmp_path):
    written = result()
    written.write(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["worker.1.parcel"]
    again = read(tmp_path)
    assert (again.bytes_sent, again.decided, again.warnings) == (written.bytes_sent, written.decided, ["one"])
    assert np.isnan(again.metrics[0].value)
    assert again.metrics[1] == written.metrics[1]
    np.testing.assert_array_equal(again.spans, written.spans)
    np.testing.assert_array_equal(again.x, written.x)


def spans_with(**changed):
    spans = result().spans.copy()
    for field, value in changed.items():
        spans[field][1] = value
    return spans


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"rank": 2}, "speaks for worker 2"),
        ({"steps": 11}, "11 steps instead of 10"),
        ({"steps": 0}, "steps"),
        ({"seconds": float("inf")}, "seconds"),
        ({"seconds": -1.0}, "seconds"),
        ({"seconds": "1"}, "seconds"),
        ({"overruns": True}, "overruns"),
        ({"bytes_sent": {7: 1}}, "workers that do not exist"),
        ({"bytes_sent": {0: -1}}, "bytes_sent.0"),
        ({"tcp_bytes_sent": 1 << 80}, "tcp_bytes_sent"),
        ({"decided": {"gamma": []}}, "decided.gamma"),
        ({"warnings": ["x" * 5000]}, "warnings.0"),
        ({"warnings": "x"}, "warnings"),
        ({"metrics": [Metric(3, 1, 0.0, 0, "a", 0.0)]}, "worker 3"),
        ({"metrics": [Metric(0, 11, 0.0, 0, "a", 0.0)]}, "step 11"),
        ({"metrics": [Metric(0, 1, float("nan"), 0, "a", 0.0)]}, "metrics.0.2"),
        ({"spans": spans_with(kind=200)}, "kind from 1 to 200"),
        ({"spans": spans_with(step=10)}, "step from 2 to 10"),
        ({"spans": spans_with(peer=3)}, "peer from -1 to 3"),
        ({"spans": spans_with(end_ns=1)}, "end before they begin"),
        ({"spans": spans_with(bytes_wire=-1)}, "bytes_wire"),
        ({"spans": spans_with(start_ns=-5)}, "start_ns"),
    ],
)
def test_what_cannot_be_true_is_refused(tmp_path, changed, why):
    result(**{"rank": 1, **changed}).write(tmp_path)
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "worker.1.parcel")
    with pytest.raises(DamagedError, match=why):
        read(tmp_path)


def test_files_of_other_kinds_are_refused(tmp_path):
    target = tmp_path / "worker.1.parcel"
    with pytest.raises(DamagedError, match="not there"):
        read(tmp_path)
    os.mkfifo(target)
    with pytest.raises(DamagedError, match="named pipe"):
        read(tmp_path)
    target.unlink()
    target.mkdir()
    with pytest.raises(DamagedError, match="directory"):
        read(tmp_path)
    target.rmdir()
    (tmp_path / "secret").write_text("{}")
    target.symlink_to(tmp_path / "secret")
    with pytest.raises(DamagedError, match="symbolic link"):
        read(tmp_path)
    target.unlink()
    target.touch()
    os.truncate(target, 1 << 40)
    with pytest.raises(DamagedError, match="bytes"):
        read(tmp_path)


HEAD = {"text": {}, "arrays": {"spans": 0, "x": 0}}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"[1]\n",
        b"{}\n",
        b"[" * 100_000,
        b"\x80\x04\x95\n",
        json.dumps({**HEAD, "more": 1}).encode() + b"\n",
        json.dumps({**HEAD, "arrays": {"spans": 0}}).encode() + b"\n",
        json.dumps({**HEAD, "arrays": {"spans": -1, "x": 0}}).encode() + b"\n",
        json.dumps({**HEAD, "arrays": {"spans": 1 << 60, "x": 0}}).encode() + b"\n",
        json.dumps({**HEAD, "arrays": {"spans": 1 << 28, "x": 0}}).encode() + b"\n",
        json.dumps({**HEAD, "arrays": {"spans": True, "x": 0}}).encode() + b"\n",
        json.dumps(HEAD).encode() + b"\nmore",
    ],
)
def test_other_contents_are_refused(tmp_path, content):
    (tmp_path / "worker.1.parcel").write_bytes(content)
    with pytest.raises(DamagedError):
        parcel.read(tmp_path, "worker.1", {"spans": SPAN, "x": np.dtype("<f4")})


def test_what_would_be_expensive_to_refuse_is_refused_at_once(tmp_path):
    """A million mistakes, each in words, would take gigabytes."""
    row = [0, 0, 0.0, 0, "a", "no number"]
    for text, why in (
        ({"metrics": [[]] * 7_000_000}, "says too much"),
        ({"metrics": [row] * 200_000}, "metrics.0.5"),
        ({"bytes_sent": {str(number): -1 for number in range(50_000)}}, "bytes_sent has 50000 entries"),
        ({str(number): 1 for number in range(50_000)}, "it has 50000 entries"),
    ):
        whole = {**HONEST, **text} if "0" not in text else text
        head = {"text": whole, "arrays": {"spans": 0, "x": 0}}
        (tmp_path / "worker.1.parcel").write_bytes(json.dumps(head).encode() + b"\n")
        with pytest.raises(DamagedError, match=why):
            read(tmp_path)


def test_arrays_are_no_larger_than_the_cell_can_have_made_them(tmp_path):
    result(x=np.zeros(5, np.float32)).write(tmp_path)
    with pytest.raises(DamagedError, match="x cannot have 5 entries"):
        JobResult.read(tmp_path, 1, size=SIZE, steps=STEPS, numel=4)
    with pytest.raises(DamagedError, match="5 numbers instead of 6"):
        JobResult.read(tmp_path, 1, size=SIZE, steps=STEPS, numel=6)
    result(spans=np.zeros(200_000, SPAN)).write(tmp_path)
    with pytest.raises(DamagedError, match="spans cannot have 200000 entries"):
        read(tmp_path)


def test_results_that_contradict_each_other_end_the_cell_alone():
    for error in (ValueError("no"), ZeroDivisionError("no"), KeyError("no")):
        with pytest.raises(TrainingError, match="contradict each other"), consistent():
            raise error


def test_unfinished_ones_are_merged_and_damaged_ones_named(tmp_path):
    lent, cell = tmp_path / "lent", tmp_path / "cell"
    lent.mkdir()
    cell.mkdir()
    write_unfinished(lent, 0, result().spans, result().metrics)
    write_unfinished(lent, 1, spans_with(kind=99), [])
    os.mkfifo(lent / "unfinished.2.parcel")
    damaged = merge_unfinished(lent, cell, SIZE, STEPS)
    assert len(damaged) == 2
    assert "kind" in damaged[0]
    assert "named pipe" in damaged[1]
    assert sorted(path.name for path in cell.iterdir()) == ["metrics.parquet", "trace.parquet"]
