"""`testbed runs`, `show` and `logs` on a run that is not finished."""

import json

import pytest

from testbed.commands import show
from testbed.errors import ScenarioError
from testbed.results import listing, logs
from testbed.results.directory import RunDirectory
from testbed.results.surroundings import newest

from .made import CELLS, calibration, diverged, done, make_run


def test_a_run_in_one_line(tmp_path):
    (one,) = listing.summaries(make_run(tmp_path).path.parent)
    assert (one.name, one.total, one.done, one.failed) == ("toy-1", 3, 1, 1)
    assert one.verdicts == {"suspect": 1}
    assert f"{one.when:%Y-%m-%d %H:%M}" == "2024-05-06 07:08"


def test_a_resumed_run_began_when_it_first_began(tmp_path):
    run = make_run(tmp_path)
    first = run.read_json("environment.json")
    run.write_json("environment.json", {**first, "time": "2025-01-01T00:00:00+00:00", "resumes": first})
    assert listing.summary(run).when.year == 2024


def test_runs_are_listed_with_the_newest_last(tmp_path, capsys):
    for name, year in (("b", 2023), ("a", 2025)):
        run = make_run(tmp_path, name)
        run.write_json(
            "environment.json", {**run.read_json("environment.json"), "time": f"{year}-01-01T00:00:00+00:00"}
        )
    (tmp_path / "other").mkdir()
    listing.show(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "b", "a"]
    assert lines[1].split() == ["b", "2023-01-01", "00:00", "1", "1", "3", "1", "suspect"]


def test_no_runs(tmp_path, capsys):
    listing.show(tmp_path / "nowhere")
    assert "no runs in" in capsys.readouterr().out


def test_a_run_before_its_network_was_up(tmp_path):
    run = RunDirectory.create("toy", tmp_path / "run")
    run.write_text("scenario.yaml", "name: toy\n")
    one = listing.summary(run)
    assert (one.total, one.done, one.failed) == (0, 0, 0)
    assert one.when is not None


def test_finding_a_run_by_path_or_name(tmp_path):
    run = make_run(tmp_path)
    assert listing.find(str(run.path)).path == run.path
    assert listing.find("toy-1", runs=tmp_path).path == run.path
    with pytest.raises(ScenarioError, match="there is no run toy-2; did you mean toy-1"):
        listing.find("toy-2", runs=tmp_path)


def test_show_tells_everything_of_an_unfinished_run(tmp_path, capsys):
    run = make_run(tmp_path)
    show.show(run, as_json=False)
    said = capsys.readouterr().out
    assert "1 of 3 cells are done; 1 failed; testbed up --resume" in said
    table = {line.split("│")[1].strip(): line for line in said.splitlines() if line.startswith("│")}
    assert "91.2%" in table["allreduce"]
    assert "suspect" in table["allreduce"]
    assert "failed" in table["dpsgd"]
    assert "w1 was killed by SIGKILL [enforce fail]" in said
    assert "10.00 / 10.10" in table["w0-w1"]
    assert "1.00% / 1.20%" in table["w0-w1"]
    assert "the network is faithful" in said  # as measured last
    assert "uml (no netem), kernel 6.1" in said
    assert "warning: allreduce: momentum is high" in said
    assert "warning: allreduce: memory could not be limited" in said


def test_show_for_programs(tmp_path, capsys):
    show.show(make_run(tmp_path), as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert (data["run"], data["total"], data["done"], data["failed"]) == ("toy-1", 3, 1, 1)
    assert data["missing"] == [CELLS[2]]
    assert [line["method"] for line in data["comparison"]] == ["allreduce", "dpsgd"]
    assert [cell["id"] for cell in data["cells"]] == list(CELLS[:2])
    assert len(data["links"]) == 1
    assert data["environment"]["box"] == "uml"


def test_a_cell_that_diverged_is_done_and_nothing_is_left_to_resume(tmp_path, capsys):
    run = make_run(tmp_path)
    for cell, found in zip(CELLS, (done(), diverged(), done()), strict=True):
        run.cell(cell).mkdir(exist_ok=True)
        run.write_json(f"cells/{cell}/result.json", found)
    one = listing.summary(run)
    assert (one.done, one.failed, one.verdicts) == (3, 0, {"suspect": 2, "diverged": 1})
    listing.show(tmp_path)
    assert capsys.readouterr().out.splitlines()[1].split()[3:] == ["3", "0", "3", "2", "suspect,", "1", "diverged"]
    show.show(run, as_json=False)
    said = capsys.readouterr().out
    assert "3 of 3 cells are done, of which 1 diverged" in said
    assert "resume" not in said
    assert "diverged at step 86" in said
    show.show(run, as_json=True)
    data = json.loads(capsys.readouterr().out)
    assert [cell["status"] for cell in data["cells"]] == ["done", "diverged", "done"]
    assert data["cells"][1]["hint"] == "warm up"


def test_show_before_anything_is_done(tmp_path, capsys):
    run = RunDirectory.create("toy", tmp_path / "run")
    run.write_text("scenario.yaml", "name: toy\n")
    run.write_json("cells.json", [{"id": "a", "method": "dpsgd"}])
    show.show(run, as_json=False)
    said = capsys.readouterr().out
    assert "0 of 1 cells are done" in said
    assert "the network was never up" in said


def test_a_calibration_survives_the_disk(tmp_path):
    (stored,) = newest(make_run(tmp_path).networks())
    assert stored.calibration == calibration()


def test_logs_have_headings_and_leave_out_silence(tmp_path, capsys):
    run = make_run(tmp_path)
    logs.show(run, None, None)
    said = capsys.readouterr().out.splitlines()
    assert said == [f"── {CELLS[0]} w2", "early", f"── {CELLS[0]} w10", "late", f"── {CELLS[1]} w0", "oh no"]
    logs.show(run, "w0", None)
    assert capsys.readouterr().out.splitlines() == [f"── {CELLS[1]} w0", "oh no"]
    logs.show(run, None, CELLS[1])
    assert capsys.readouterr().out.splitlines() == [f"── {CELLS[1]} w0", "oh no"]
    logs.show(run, "w0", CELLS[0])
    assert "nothing was said in 1 logs" in capsys.readouterr().err


def test_logs_of_what_does_not_exist(tmp_path):
    run = make_run(tmp_path)
    with pytest.raises(ScenarioError, match="no cell v0-dpsg-r0; did you mean v0-dpsgd-r0"):
        logs.show(run, None, "v0-dpsg-r0")
    with pytest.raises(ScenarioError, match="no worker w7"):
        logs.show(run, "w7", None)
