"""Which scenario a run goes on with, and what is refused."""

import pytest
from results.made import done, failed

from testbed.errors import ScenarioError
from testbed.plan.make import plan
from testbed.results.directory import RunDirectory
from testbed.results.own_scenario import own_scenario
from testbed.run.resume import MISSING, check_same, difference, incomplete, remember
from testbed.scenario.load import load

TEXT = "workers: 3\nmethods: [allreduce, {choco: {compressor: sign}}]\ntraining: {steps: 20}\n"


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1, "b": {"c": [1, 2]}}, {"a": 1, "b": {"c": [1, 3]}}, ("b.c.1", 2, 3)),
        ({"a": [1]}, {"a": [1, 2]}, ("a.1", MISSING, 2)),
        ({"a": 1}, {}, ("a", 1, MISSING)),
        ({}, {"z": 1}, ("z", MISSING, 1)),
        ({"a": 1}, {"a": True}, ("a", 1, True)),
        ({"a": "ring"}, {"a": ["r"]}, ("a", "ring", ["r"])),
        ({"b": 1, "a": 1}, {"a": 2, "b": 2}, ("b", 1, 2)),
    ],
)
def test_the_first_difference(before, after, found):
    assert difference(before, after) == found


def run_of(folder, text=TEXT) -> RunDirectory:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "s.yaml").write_text(text)
    run = RunDirectory.create("s", folder / "run")
    scenario = load(folder / "s.yaml")
    remember(run, scenario, plan(scenario))
    return run


def test_a_run_knows_its_scenario(tmp_path):
    run = run_of(tmp_path)
    assert own_scenario(run) == load(tmp_path / "s.yaml")
    check_same(run, load(tmp_path / "s.yaml"))


def test_what_cells_are_is_on_record_with_all_that_nobody_said(tmp_path):
    run = run_of(tmp_path)
    cell = run.read_json("cells.json")[0]
    assert cell["task"]["batch"] == 32
    assert list(cell["task"]["model"]) == ["mlp"]
    assert cell["gossip"]["name"] == "ring"
    assert 0 < cell["gossip"]["spectral_gap"] <= 1
    written = run.read_json("origin.json")["written"]
    assert "workers" in written
    assert "seed" not in written


def test_cells_that_failed_are_run_again_and_those_that_diverged_are_not(tmp_path):
    run = run_of(tmp_path)
    made = plan(own_scenario(run))
    assert incomplete(made, run) == list(made.cells)
    first, second = made.cells
    for cell, values in ((first, {"diverged": {"worker": "w1", "step": 4}}), (second, {"diverged": None})):
        run.cell(cell.id).mkdir()
        run.write_json(f"cells/{cell.id}/result.json", {**failed(), "error": "w1: head holds NaN", **values})
    assert incomplete(made, run) == [second]
    run.write_json(f"cells/{second.id}/result.json", done())
    assert incomplete(made, run) == []


def test_files_that_the_scenario_names_are_found_from_the_run(tmp_path, monkeypatch):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "rate.csv").write_text("time,rate\n0,1mbit\n")
    text = TEXT + "network: {topology: ring, link: {rate: 1mbit, trace: rate.csv}}\n"
    run = run_of(folder, text)
    monkeypatch.chdir(tmp_path)
    scenario = own_scenario(run)
    assert scenario.resolve("rate.csv") == folder / "rate.csv"


def test_another_scenario_is_refused_with_the_first_key_that_differs(tmp_path):
    run = run_of(tmp_path)
    (tmp_path / "other.yaml").write_text("name: s\n" + TEXT.replace("20", "21"))
    with pytest.raises(ScenarioError) as error:
        check_same(run, load(tmp_path / "other.yaml"))
    assert "other.yaml:4: training.steps is 21; the run in" in str(error.value)
    assert str(error.value).endswith("has 20")
    assert f"testbed up --resume {run.path}" in error.value.hint


def test_an_override_differs_too(tmp_path):
    run = run_of(tmp_path)
    with pytest.raises(ScenarioError, match=r"--set seed=5: seed is 5; the run in .* has 1"):
        check_same(run, load(tmp_path / "s.yaml", ["seed=5"]))
