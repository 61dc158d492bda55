"""The run directory: made once, written whole, refused clearly."""

import errno
import os
from types import SimpleNamespace

import pytest

from testbed.errors import ScenarioError, StorageError
from testbed.results.directory import RunDirectory, environment, moved

from .made import done


def begun(path, cells=("a", "b")) -> RunDirectory:
    run = RunDirectory.create("toy", path)
    run.write_text("scenario.yaml", "name: toy\n")
    run.write_json("cells.json", [{"id": name, "method": name} for name in cells])
    return run


def test_a_new_run_has_a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = RunDirectory.create("toy", None), RunDirectory.create("toy", None)
    assert first.path != second.path
    assert {first.path.parent, second.path.parent} == {tmp_path / "runs"}
    assert first.path.name.startswith("toy-2")


def test_a_run_is_never_written_over_another(tmp_path):
    begun(tmp_path / "run")
    with pytest.raises(ScenarioError, match="holds a run already") as error:
        RunDirectory.create("toy", tmp_path / "run")
    assert "--resume" in error.value.hint


def test_a_directory_with_other_files_may_become_a_run(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    begun(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_only_runs_are_opened(tmp_path):
    begun(tmp_path / "run")
    assert RunDirectory.open(tmp_path / "run").path == tmp_path / "run"
    with pytest.raises(ScenarioError, match="is not a run directory"):
        RunDirectory.open(tmp_path)


def test_results_come_in_the_order_of_the_plan_with_what_the_cell_is(tmp_path):
    run = begun(tmp_path / "run")
    assert list(run.results()) == []
    for name in ("b", "a"):
        run.cell(name).mkdir()
        run.write_json(f"cells/{name}/result.json", {**done(), "hint": name})
    assert [(one.id, one.cell.method, one.hint) for one in run.results()] == [("a", "a", "a"), ("b", "b", "b")]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"status": 5}', "{'a': 1}", '{"error": null, "verdict": {"grade": "suspect"}}']
)
def test_a_damaged_result_is_left_out_and_named(tmp_path, content):
    run = begun(tmp_path / "run")
    for name in ("a", "b"):
        run.cell(name).mkdir()
        run.write_json(f"cells/{name}/result.json", done())
    (run.cell("a") / "result.json").write_text(content)
    assert [one.id for one in run.results()] == ["b"]
    (complaint,) = run.complaints()
    assert complaint.startswith(f"{run.cell('a')}/result.json is damaged (")
    assert complaint.endswith("): left out")


def test_json_is_whole_or_not_there(tmp_path):
    run = begun(tmp_path / "run")
    run.write_json("links.json", {"uses": frozenset({"b", "a"})})
    with pytest.raises(TypeError):
        run.write_json("links.json", {("no", "key"): 1})
    assert run.read_json("links.json") == {"uses": ["a", "b"]}
    assert run.read_json("nothing.json", 7) == 7
    (run.path / "links.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        run.read_json("links.json")


def test_one_process_at_a_time(tmp_path):
    run = begun(tmp_path / "run")
    second = RunDirectory.open(run.path)
    with run.locked(), pytest.raises(StorageError, match="another testbed up is running"), second.locked():
        pytest.fail("two at once")
    with RunDirectory.open(run.path).locked():
        pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG])
def test_what_the_disk_refuses_is_said_plainly(tmp_path, number):
    run = begun(tmp_path / "run")
    with pytest.raises(StorageError) as error, run.writing():
        raise OSError(number, "whatever")
    assert str(error.value) == f"cannot write to {run.path}: {os.strerror(number)}"


def test_other_errors_stay_what_they_are(tmp_path):
    with pytest.raises(ConnectionResetError), begun(tmp_path / "run").writing():
        raise ConnectionResetError(errno.ECONNRESET, "reset")


def test_a_run_that_was_taken_away(tmp_path):
    run = begun(tmp_path / "run")
    run.path.rename(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="No such file"):
        run.write_json("links.json", [])


def test_the_environment_names_what_matters():
    found = environment({"box": "uml"})
    assert found["packages"]["torch"]
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["box"] == "uml"


def test_links_that_workers_made_are_not_followed(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.begin("a")
    (tmp_path / "host").write_text("precious")
    lent = run.lent("a")
    (lent / "own").mkdir()
    (lent / "own/notes.txt").write_text("mine")
    for name in ("counters.parquet", "own/w0.log", "verdict.part", "progress", "worker.0.parcel"):
        (lent / name).symlink_to(tmp_path / "host")
    run.keep_files("a", ["progress", "worker.*"])
    run.end("a")
    assert {path.name for path in run.cell("a").rglob("*")} == {"logs", "files", "own", "notes.txt"}
    assert (tmp_path / "host").read_text() == "precious"
    assert not lent.exists()


def test_of_an_interrupted_cell_only_what_its_workers_go_on_from_is_kept(tmp_path):
    run, wanted = RunDirectory(tmp_path / "run"), ("checkpoints", "snapshots")
    assert not run.begin("a", wanted)
    lent = run.lent("a")
    for name in ("checkpoints/8", "snapshots", "own"):
        (lent / name).mkdir(parents=True)
    for name in ("checkpoints/8/0.pt", "rendezvous", "worker.0.parcel"):
        (lent / name).touch()
    (run.notices("a") / "lost.0.0.json").touch()
    assert run.begin("a", wanted)
    assert {path.name for path in lent.rglob("*")} == {"checkpoints", "8", "0.pt", "snapshots"}
    assert not list(run.notices("a").iterdir())
    assert not run.begin("a"), "not where the scenario has no checkpoints"
    assert not list(lent.iterdir())


def test_checkpoints_that_lead_elsewhere_are_not_kept(tmp_path):
    run = RunDirectory(tmp_path / "run")
    run.begin("a")
    (tmp_path / "host").mkdir()
    (tmp_path / "host/8").touch()
    (run.lent("a") / "checkpoints").symlink_to(tmp_path / "host")
    assert not run.begin("a", ("checkpoints",))
    assert not list(run.lent("a").iterdir())
    assert (tmp_path / "host/8").exists()


def test_a_run_that_went_on_on_another_machine_is_told():
    here = {"cpu": "fast", "cores": 2, "box": "uml", "runtime": "process", "machine": "x86_64", "kernel": "6.1"}
    assert moved(None, here) == ""
    assert moved({**here, "kernel": "6.2"}, here) == ""
    assert moved({**here, "cores": 4}, here) == "cores 2 instead of 4"
    back = {**here, "resumes": {**here, "box": "host", "resumes": None}}
    assert moved(back, here) == "box uml instead of host"  # as it was in the beginning


def test_a_disk_refuses_only_where_it_does(tmp_path, monkeypatch):
    run = RunDirectory.create("x", tmp_path / "run")
    assert not run.refuses()
    assert [path.name for path in run.path.iterdir()] == ["cells"]
    real = os.statvfs(run.path)
    full = SimpleNamespace(f_bavail=1, f_frsize=real.f_frsize, f_files=real.f_files, f_favail=real.f_favail)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert run.refuses()
