"""Damaged files of a run."""

import os
import shutil

import pandas as pd
import pytest
from click.testing import CliRunner
from recorded_runs import SWEEP

from testbed.cli import cli
from testbed.results.parquet import read_table
from testbed.results.run import open_run
from testbed.safe_files import DamagedError

CELL = "cells/v0-dpsgd-r0"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("trace.parquet", ["trace", "RUN", "--cell", "v0-dpsgd-r0", "--perfetto", "OUT.json"]),
        ("counters.parquet", ["trace", "RUN", "--cell", "v0-dpsgd-r0", "--perfetto", "OUT.json"]),
    ],
)
def test_a_file_that_was_cut_is_named(tmp_path, name, command):
    run = shutil.copytree(SWEEP, tmp_path / "run")
    with (run / CELL / name).open("r+b") as file:
        file.truncate(37)
    words = [word.replace("RUN", str(run)).replace("OUT", str(tmp_path / "out")) for word in command]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, DamagedError)
    assert f"{name} is damaged (it cannot be read" in str(done.exception)


def test_a_table_that_was_cut_is_left_out_of_an_export_and_named(tmp_path):
    run = shutil.copytree(SWEEP, tmp_path / "run")
    os.truncate(run / CELL / "metrics.parquet", 37)
    done = CliRunner().invoke(cli, ["export", str(run), "--csv", str(tmp_path / "out")])
    assert done.exit_code == 0
    assert f"{CELL}/metrics.parquet is damaged (it cannot be read" in done.stderr
    cells = set(pd.read_csv(tmp_path / "out/metrics.csv")["cell"])
    assert len(cells) == 19
    assert "v0-dpsgd-r0" not in cells


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(DamagedError, match=r"trace\.parquet is damaged \(it is gone"):
        read_table(tmp_path / "trace.parquet")


def test_one_damaged_trace_does_not_hide_the_others(tmp_path):
    run = shutil.copytree(SWEEP, tmp_path / "run")
    (run / CELL / "trace.parquet").write_bytes(b"PAR1")
    opened = open_run(run)
    assert len(opened.trace_of("v0-allreduce-r0"))
    with pytest.raises(DamagedError, match=r"v0-dpsgd-r0/trace\.parquet"):
        opened.trace_of("v0-dpsgd-r0")
