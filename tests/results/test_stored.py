"""Damaged files of a run."""

import shutil

import pytest
from click.testing import CliRunner
from recorded_runs import SWEEP

from testbed.cli import cli
from testbed.errors import StorageError
from testbed.results.opened import open_run
from testbed.results.stored import read_table

CELL = "cells/v0-dpsgd-r0"


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("trace.parquet", ["trace", "RUN", "--cell", "v0-dpsgd-r0", "--perfetto", "OUT.json"]),
        ("counters.parquet", ["trace", "RUN", "--cell", "v0-dpsgd-r0", "--perfetto", "OUT.json"]),
        ("metrics.parquet", ["export", "RUN", "--csv", "OUT"]),
    ],
)
def test_a_file_that_was_cut_is_named(tmp_path, name, command):
    run = shutil.copytree(SWEEP, tmp_path / "run")
    with (run / CELL / name).open("r+b") as file:
        file.truncate(37)
    words = [word.replace("RUN", str(run)).replace("OUT", str(tmp_path / "out")) for word in command]
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, StorageError)
    assert f"{name} cannot be read" in str(done.exception)


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"gone\.parquet cannot be read"):
        read_table(tmp_path / "gone.parquet")


def test_one_damaged_trace_does_not_hide_the_others(tmp_path):
    run = shutil.copytree(SWEEP, tmp_path / "run")
    (run / CELL / "trace.parquet").write_bytes(b"PAR1")
    opened = open_run(run)
    assert len(opened.trace_of("v0-allreduce-r0"))
    with pytest.raises(StorageError, match=r"v0-dpsgd-r0/trace\.parquet"):
        opened.trace_of("v0-dpsgd-r0")
