"""Run directories in which something is damaged: readers leave it out and name it, or end with one clear error."""

import json
import os

import pytest
from click.testing import CliRunner
from recorded_runs import FAULTS, SWEEP, copy
from stress.fuzz_runs import failures

from testbed.cli import cli
from testbed.results.directory import RunDirectory
from testbed.results.run import open_run
from testbed.safe_files import DamagedError

CELL = "v0-dpsgd-r0"


def said(*words):
    return CliRunner().invoke(cli, list(map(str, words)))


@pytest.mark.slow
def test_no_reader_answers_damage_with_a_traceback():
    assert [str(failure) for failure in failures(250)] == []


def test_one_damaged_run_does_not_hide_the_others(tmp_path):
    for run in (SWEEP, FAULTS):
        copy(run, tmp_path)
    (tmp_path / "sweep/cells.json").write_text('[{"id": "v0')
    done = said("runs", tmp_path)
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", "faults"]
    assert "sweep/cells.json is damaged" in done.stderr


def test_where_no_run_can_be_read_that_is_an_error(tmp_path):
    (copy(FAULTS, tmp_path) / "cells.json").write_text("{}")
    done = said("runs", tmp_path)
    assert done.exception.exit_code == 1
    assert "cells.json is damaged (it holds no list)" in done.stderr


@pytest.mark.parametrize("command", [("show",), ("show", "--json"), ("logs",), ("trace",), ("export", "--csv")])
def test_a_run_without_its_cells_cannot_be_read_at_all(tmp_path, command):
    run = copy(FAULTS, tmp_path)
    (run / "cells.json").write_bytes(b"\xff\xfe\x00")
    done = said(command[0], run, *command[1:])
    assert isinstance(done.exception, DamagedError)
    assert done.exception.exit_code == 1
    assert "cells.json is damaged (byte 0 is not UTF-8)" in str(done.exception)


def test_a_damaged_cell_is_left_out_and_named(tmp_path):
    run = copy(FAULTS, tmp_path)
    (run / "cells" / CELL / "result.json").write_text('{"error": 5, "verdict": {}}')
    for command in (("show", run), ("show", "--json", run), ("compare", run, FAULTS)):
        done = said(*command)
        assert done.exit_code == 0, done.exception
        assert f"warning: {run}/cells/{CELL}/result.json is damaged (error: Input should be" in done.stderr
    data = json.loads(said("show", "--json", run).stdout)
    assert data["missing"] == [CELL]
    assert len(data["damaged"]) == 1
    opened = open_run(run)
    assert len(opened.results) == 5
    assert CELL in opened.damaged[0]


def test_a_damaged_table_of_one_cell_leaves_those_of_the_others(tmp_path):
    run = copy(FAULTS, tmp_path)
    (run / "cells" / CELL / "metrics.parquet").write_bytes(b"PAR1")
    opened = open_run(run)
    assert set(opened.metrics["cell"]) == {cell for cell in opened.raw if cell != CELL}
    assert len(opened.damaged) == 1


def test_a_damaged_entry_of_a_list_is_left_out(tmp_path):
    run = copy(FAULTS, tmp_path)
    cells = json.loads((run / "cells.json").read_text())
    cells[0]["id"] = "../../elsewhere"
    cells[1]["workers"] = "many"
    cells.append(cells[2])
    (run / "cells.json").write_text(json.dumps(cells))
    directory = RunDirectory.open(run)
    assert [cell.id for cell in directory.cells()] == [cell["id"] for cell in cells[2:6]]
    assert [complaint.split(", ")[1].split(" ")[0] for complaint in directory.complaints()] == [
        "entry",
        "entry",
        cells[2]["id"],
    ]


def test_logs_that_are_none_are_named_and_the_others_shown(tmp_path):
    run = copy(FAULTS, tmp_path)
    logs = run / "cells" / CELL / "logs"
    for name, make in (("w0", os.mkdir), ("w1", os.mkfifo), ("w2", lambda path: os.symlink(path, path))):
        (logs / f"{name}.log").unlink()
        make(logs / f"{name}.log")
    (logs / "w3.log").write_text("alive\n")
    done = said("logs", run, "--cell", CELL)
    assert done.exit_code == 0
    assert "alive" in done.stdout
    for words in (
        "w0.log is damaged (it is a directory)",
        "w1.log is damaged (it is a named pipe)",
        "w2.log is damaged",
    ):
        assert words in done.stderr


def test_of_a_huge_log_the_end_is_shown(tmp_path):
    run = copy(FAULTS, tmp_path)
    log = run / "cells" / CELL / "logs/w0.log"
    os.truncate(log, 1 << 40)
    with log.open("a") as file:
        file.write("the end\n")
    done = said("logs", run, "w0", "--cell", CELL)
    assert "bytes before this are left out" in done.stdout
    assert "the end" in done.stdout
    assert len(done.stdout) < 20 << 20


def test_a_run_that_goes_on_says_that_it_does_not_know_where_it_began(tmp_path):
    from testbed.plan.make import plan
    from testbed.results.own_scenario import own_scenario
    from testbed.run.controller import Controller, Options
    from testbed.run.live import PlainView

    run = RunDirectory.open(copy(FAULTS, tmp_path))
    (run.path / "environment.json").write_text("[]")
    controller = Controller(plan(own_scenario(run)), run, Options(), PlainView())
    assert controller._before is None
    assert controller._unknown
