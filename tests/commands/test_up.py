"""What `testbed up` refuses before anything is started, and how its arguments choose what is run."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from results import made
from running import SCENARIO, Place, write

from testbed.commands.up import Request
from testbed.commands.up import run as up
from testbed.errors import MissingError, ScenarioError
from testbed.interrupts import Interrupted
from testbed.plan.make import plan
from testbed.results.directory import RunDirectory
from testbed.run import resume
from testbed.run.resume import remember
from testbed.scenario.load import load


@pytest.fixture(autouse=True)
def _nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In an empty directory, which stays empty but for what the test itself writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TESTBED_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("testbed.run.controller.Controller.run", lambda *_: pytest.fail("cells were run"))
    yield
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "runs").exists()


def old_run(folder: Path, file: Path) -> Path:
    run = RunDirectory.create("small", folder / "old")
    scenario = load(file)
    remember(run, scenario, plan(scenario))
    return run.path


def test_a_scenario_that_is_wrong(tmp_path):
    file = write(tmp_path, wrokers="3")
    with pytest.raises(ScenarioError, match=r"small.yaml:7: wrokers: unknown key.*did you mean 'workers'"):
        up(Request(file))


def test_a_training_that_diverged_is_a_result_and_not_run_again(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr("testbed.run.controller.Controller.run", lambda _, cells: ran.extend(cells))
    run = RunDirectory(old_run(tmp_path, write(tmp_path)))
    first, second = [cell["id"] for cell in run.read_json("cells.json")]
    invalid = {"grade": "invalid", "reasons": ["the box was busy"]}
    for cell, found in ((first, made.done()), (second, {**made.diverged(), "verdict": invalid})):
        run.cell(cell).mkdir()
        run.write_json(f"cells/{cell}/result.json", found)
    assert up(Request(None, resume=run.path)) == 0
    assert ran == []
    told = capsys.readouterr().out
    assert "0 of 2 cells are missing" in told
    assert "diverged at step 86" in told
    run.write_json(f"cells/{second}/result.json", made.failed())
    assert up(Request(None, resume=run.path)) == 5
    assert [cell.id for cell in ran] == [second]


def test_a_result_that_was_damaged_is_made_again(tmp_path, monkeypatch, capsys):
    ran = []
    monkeypatch.setattr("testbed.run.controller.Controller.run", lambda _, cells: ran.extend(cells))
    run = RunDirectory(old_run(tmp_path, write(tmp_path)))
    cells = [cell["id"] for cell in run.read_json("cells.json")]
    for cell, text in zip(cells, ('{"error": nul', "[]"), strict=True):
        run.cell(cell).mkdir()
        run.write_text(f"cells/{cell}/result.json", text)
    assert up(Request(None, resume=run.path)) == 0
    assert [cell.id for cell in ran] == cells
    said = capsys.readouterr().err
    assert all(f"{cell}/result.json is damaged" in said for cell in cells)


def test_models_that_do_not_fit_are_refused_before_anything_starts(tmp_path):
    file = write(tmp_path, task="{model: {mlp: {hidden: [1000000, 1000000]}}}")
    with pytest.raises(MissingError, match=r"small.yaml:\d: 3 workers with a model of .* do not fit into this machine"):
        up(Request(file))
    assert not (tmp_path / "runs").exists()


def test_no_scenario_at_all(tmp_path):
    with pytest.raises(ScenarioError, match="which scenario"):
        up(Request(None))
    with pytest.raises(ScenarioError, match="no such file"):
        up(Request(tmp_path / "nowhere.yaml"))


def test_an_unknown_method_and_an_unknown_option(tmp_path):
    with pytest.raises(ScenarioError, match=r"small.yaml:6: .*dpsdg.*did you mean dpsgd"):
        up(Request(write(tmp_path, methods="[dpsdg]")))
    with pytest.raises(ScenarioError, match=r"small.yaml:6: .*gama.*did you mean gamma"):
        up(Request(write(tmp_path, methods="[{choco: {compressor: sign, gama: 1}}]")))


def test_an_unknown_task_is_told_with_its_line(tmp_path):
    with pytest.raises(ScenarioError, match=r"small.yaml:6: unknown data set 'digts'.*did you mean digits"):
        up(Request(write(tmp_path, task="digts")))


def test_a_data_set_that_is_not_here(tmp_path, monkeypatch):
    monkeypatch.setenv("TESTBED_DATA", str(tmp_path / "empty"))
    with pytest.raises(MissingError, match=r"small.yaml:6: the data set cifar10 is not on this machine") as error:
        up(Request(write(tmp_path, task="cifar10")))
    assert error.value.hint == "testbed data fetch cifar10"


def test_without_an_engine_nothing_is_begun(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    for request in (Request(write(tmp_path), runtime="docker"), Request(write(tmp_path, runtime="docker"))):
        with pytest.raises(MissingError, match=r"there is no Docker engine at unix://.*docker\.sock") as error:
            up(request)
        assert "--runtime process" in error.value.hint


@pytest.mark.parametrize(("only", "words"), [("dpsg", "did you mean dpsgd"), ("sgd2000", "no such method")])
def test_only_what_the_scenario_has(tmp_path, only, words):
    with pytest.raises(ScenarioError, match=words) as error:
        up(Request(write(tmp_path), only=("allreduce", only)))
    assert error.value.hint == "it has allreduce, dpsgd"


def test_a_dry_run_shows_the_plan_and_writes_nothing(tmp_path, capsys):
    assert up(Request(write(tmp_path), dry_run=True)) == 0
    assert "dpsgd" in capsys.readouterr().out


def test_a_place_that_holds_a_run(tmp_path):
    file = write(tmp_path)
    path = old_run(tmp_path, file)
    with pytest.raises(ScenarioError, match="holds a run already"):
        up(Request(file, out=path))


def test_resuming_with_another_scenario(tmp_path):
    path = old_run(tmp_path, write(tmp_path))
    other = write(tmp_path, name="other.yaml", training="{steps: 13, lr: 0.05, eval_every: 6}")
    with pytest.raises(ScenarioError, match=r"other.yaml:6: training.steps is 13; the run in .*old has 12"):
        up(Request(other, resume=path))
    with pytest.raises(ScenarioError, match="seed is 3"):
        up(Request(tmp_path / "small.yaml", sets=("seed=3",), resume=path))
    with pytest.raises(ScenarioError, match="--set would change the run's scenario"):
        up(Request(None, sets=("seed=3",), resume=path))
    with pytest.raises(ScenarioError, match="--slow-motion would change the run's scenario"):
        up(Request(None, sets=("slow_motion=8",), resume=path))
    with pytest.raises(ScenarioError, match="--profile would change the run's scenario"):
        up(Request(None, profile="small", resume=path))


def test_a_signal_while_the_directory_is_made_leaves_one_that_can_be_resumed(tmp_path, monkeypatch):
    def interrupted(*args):
        signal.raise_signal(signal.SIGTERM)
        remember(*args)

    monkeypatch.setattr(resume, "remember", interrupted)
    with pytest.raises(Interrupted, match="terminated") as stop:
        up(Request(write(tmp_path), out=tmp_path / "begun"))
    assert "testbed up --resume" in stop.value.hint
    assert RunDirectory.open(tmp_path / "begun").cells()


def test_a_profile_is_what_is_run(tmp_path, capsys):
    file = write(tmp_path, profiles="{tiny: {workers: 2, methods: [dpsgd]}}")
    assert up(Request(file, dry_run=True, profile="tiny")) == 0
    assert "small-tiny: 2 workers, 1 link, 1 network point, 1 cell" in capsys.readouterr().out
    with pytest.raises(ScenarioError, match="no profile 'tny'; there are: tiny; did you mean 'tiny'"):
        up(Request(file, dry_run=True, profile="tny"))


def test_resuming_what_is_no_run_or_elsewhere(tmp_path):
    with pytest.raises(ScenarioError, match="is not a run directory"):
        up(Request(None, resume=tmp_path))
    path = old_run(tmp_path, write(tmp_path))
    with pytest.raises(ScenarioError, match="exclude each other"):
        up(Request(None, resume=path, out=tmp_path / "new"))


def test_errors_on_the_command_line_have_their_codes_and_no_traceback(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    place = Place(tmp_path)
    write(tmp_path, SCENARIO + "runtime: docker\n")
    done = place.run("up", "small.yaml")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.splitlines()[-2:] == [
        "error: there is no Docker engine at unix:///nowhere/docker.sock",
        "  → install Docker (on Debian: apt-get install docker.io), or use --runtime process",
    ]
    assert place.run("up", "nowhere.yaml").returncode == 2
    assert place.run("show", "nothing").returncode == 2
    assert place.run("logs", "nothing").returncode == 2
