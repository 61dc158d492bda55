"""What notebooks call."""

import subprocess
import sys
from pathlib import Path

import pytest

import testbed
from testbed.errors import ScenarioError

QUICK = {"workers": 2, "methods": ["dpsgd"], "training": {"steps": 3}, "task": {"data": "digits", "batch": 8}}


def test_importing_the_package_is_light():
    heavy = "print(sorted({'pandas', 'torch', 'pydantic', 'matplotlib', 'pyarrow'} & set(sys.modules)))"
    code = f"import sys, testbed; testbed.__version__; {heavy}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_stands_in_the_way_of_a_name():
    import testbed.cli  # imports what the commands need

    assert {testbed.load.__module__, testbed.up.__module__, testbed.open_run.__module__} == {"testbed.notebook"}


def test_unknown_names_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'down'"):
        testbed.down  # noqa: B018


def test_a_scenario_from_a_mapping_a_text_and_a_file_is_the_same(tmp_path):
    text = "workers: 4\nnetwork: {link: {latency: 7ms}}\nmethods: [allreduce, {choco: {compressor: sign}}]\n"
    (tmp_path / "scenario.yaml").write_text(text)
    data = {
        "workers": 4,
        "network": {"link": {"latency": "7ms"}},
        "methods": ("allreduce", {"choco": {"compressor": "sign"}}),
    }
    from_file = testbed.load(tmp_path / "scenario.yaml")
    assert testbed.load(str(tmp_path / "scenario.yaml")) == from_file
    assert testbed.load(text) == from_file
    assert testbed.load(data) == from_file
    assert testbed.load(from_file) is from_file
    assert float(from_file.network.link.latency) == 0.007
    assert data["methods"] == ("allreduce", {"choco": {"compressor": "sign"}})


def test_changes_and_mistakes():
    assert testbed.load(QUICK, ["training.steps=9"]).training.steps == 9
    with pytest.raises(ScenarioError, match=r"did you mean 'steps'"):
        testbed.load({**QUICK, "training": {"stesp": 3}})
    with pytest.raises(ScenarioError, match="not changed"):
        testbed.load(testbed.load(QUICK), ["seed=2"])


def test_what_cannot_begin_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError, match="no such method"):
        testbed.up(QUICK, only=["choco"])
    assert list(Path("runs").iterdir()) == []


@pytest.mark.netem
def test_up_runs_and_opens(tmp_path):
    run = testbed.up(QUICK, tmp_path / "run", sets=["compute.step_time=5ms"], calibrating=False)
    assert run.path == tmp_path / "run"
    assert run.results["steps"].tolist() == [3]
    assert set(run.metrics["metric"]) >= {"train_loss"}
    assert run.scenario.training.steps == 3
