"""Traces as bars."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import concat_tables, parquet

from testbed.report.timeline import WIDTH, timeline, window
from testbed.worker.trace import CODES, SPAN, to_arrow

MS = 1_000_000


def written(tmp_path: Path, workers: int = 2, steps: int = 10) -> Path:
    """Steps of 6 ms compute and 4 ms wait; a message on its way over both."""
    tables = []
    for worker in range(workers):
        rows = []
        for step in range(steps):
            at = 10 * step * MS
            rows.append((CODES["compute"], step, -1, at, at + 6 * MS, 0, 0))
            rows.append((CODES["wait"], step, 1, at + 6 * MS, at + 10 * MS, 0, 0))
            rows.append((CODES["send"], step, 1, at, at + 10 * MS, 0, 0))
            rows.append((CODES["receive"], step, 1, at, at + 10 * MS, 0, 0))
        tables.append(to_arrow(worker, np.array(rows, dtype=SPAN)))
    parquet.write_table(concat_tables(tables), tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


def widths(path: str) -> list[float]:
    return [float(found) for found in re.findall(r"M[\d.]+ [\d.]+h([\d.]+)v", path)]


def test_bars_are_as_long_as_what_they_stand_for(tmp_path):
    made = timeline(written(tmp_path), "dpsgd", 0.04, 0.01)
    assert made is not None
    assert (made.workers, made.left_out, made.steps, made.ends) == (("w0", "w1"), 0, pytest.approx(4), False)
    assert set(made.paths) == {"compute", "wait", "send"}
    total = {kind: sum(widths(path)) / 2 for kind, path in made.paths.items()}
    assert total == {"compute": pytest.approx(0.6 * WIDTH), "wait": pytest.approx(0.4 * WIDTH), "send": WIDTH}


def test_it_shows_the_middle_and_says_when_training_was_over_before(tmp_path):
    made = timeline(written(tmp_path), "dpsgd", 0.5, 0.01)
    assert made is not None
    assert (made.steps, made.ends) == (pytest.approx(10), True)
    assert sum(widths(made.paths["send"])) == pytest.approx(2 * WIDTH / 5)


def test_too_many_workers_are_counted(tmp_path):
    made = timeline(written(tmp_path, workers=40), "dpsgd", 0.04, 0.01)
    assert made is not None
    assert (len(made.workers), made.left_out) == (16, 24)


def test_an_empty_trace(tmp_path):
    parquet.write_table(to_arrow(0, np.array([], dtype=SPAN)), tmp_path / "trace.parquet")
    assert timeline(tmp_path / "trace.parquet", "dpsgd", 1.0, 0.1) is None


def test_the_window_suits_the_slowest_and_the_fastest():
    assert window([0.3, 0.03]) == pytest.approx(0.9)  # three steps of the slowest
    assert window([3.0, 0.01]) == pytest.approx(0.4)  # not too many of the fastest
