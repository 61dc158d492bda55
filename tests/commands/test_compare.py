"""Runs side by side."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from results.made import compare
from results.test_comparison import reached, result

from testbed.commands.compare import Difference, differences, distinct, show, side_by_side
from testbed.errors import ScenarioError
from testbed.results.directory import RunDirectory

RECORDED = Path(__file__).parent.parent / "recorded"


def test_what_differs_between_scenarios():
    first = {"workers": {"count": 4}, "training": {"lr": 0.1}, "methods": ["dpsgd"], "sweep": {}}
    second = {"workers": {"count": 8}, "training": {"lr": 0.1, "warmup": 5}, "methods": ["dpsgd", "choco"], "sweep": {}}
    assert differences([first, second]) == [
        Difference("workers.count", ("4", "8")),
        Difference("methods", ('["dpsgd"]', '["dpsgd", "choco"]')),
        Difference("training.warmup", ("–", "5")),
    ]
    assert differences([first, first]) == []


def test_names_are_as_long_as_needed():
    assert distinct([Path("/a/one"), Path("/a/two")]) == ["one", "two"]
    assert distinct([Path("/a/x"), Path("/b/x")]) == ["a/x", "b/x"]
    assert distinct([Path("/a/x"), Path("/a/x")]) == ["x (1)", "x (2)"]


def test_only_what_two_runs_have_is_compared():
    first = compare([result("dpsgd", setting="a"), result("choco", setting="a")])
    second = compare([result("dpsgd", setting="a"), result("dpsgd", setting="b")])
    assert list(side_by_side([first, second])) == [("a", "dpsgd")]


def other(tmp_path: Path, factor: float, name: str = "sweep") -> RunDirectory:
    """The recorded run once more, with other times."""
    run = RunDirectory.open(shutil.copytree(RECORDED / name, tmp_path / "other"))
    for cell in run.read_json("cells.json"):
        file = f"cells/{cell['id']}/result.json"
        found = run.read_json(file)
        if found["target"] and found["target"]["seconds"]:
            found["target"]["seconds"] *= factor
        run.write_json(file, found)
    text = (run.path / "scenario.yaml").read_text()
    run.write_text("scenario.yaml", text.replace("seed: 1", "seed: 7"))
    return run


def test_times_and_their_ratio(tmp_path, capsys):
    recorded = RunDirectory.open(RECORDED / "sweep")
    show([recorded, other(tmp_path, 0.5)], as_json=False)
    told = capsys.readouterr().out
    assert "seed" in told
    reached = [one for one in recorded.results() if one.target.seconds]
    assert 16 <= len(reached) < 20  # five methods on four networks; one never gets there
    assert len(re.findall(r"0\.50  *[│┃]", told)) == len(reached)
    assert "time to 85 %, and accuracy at the end" in told
    assert "not reached, " in told
    show([recorded, recorded], as_json=False)
    assert "the runs have the same scenario" in capsys.readouterr().out


def test_how_well_the_models_did_stands_beside_the_time():
    from testbed.commands.compare import _cell, _metric

    def cells(final: dict[str, float], **values):
        lines = compare([result(final=final, **values)])
        return [_cell(line, _metric([lines])) for line in lines]

    assert cells({"test_accuracy": 0.912, "test_loss": 0.3}) == ["100.0 ms, 91.2 %"]
    assert cells({"test_accuracy": 0.8}, target=reached(None)) == ["not reached, 80.0 %"]
    assert cells({"test_loss": 0.0312}, target=reached(1.5)) == ["1.50 s, 0.0312"]
    assert cells({}) == ["100.0 ms"]


def test_for_programs(tmp_path, capsys):
    show([RunDirectory.open(RECORDED / "sweep"), other(tmp_path, 0.5)], as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == ["sweep", "other"]
    assert told["differences"]["seed"] == {"sweep": "1", "other": "7"}
    assert len(told["comparison"]) == 20


def test_one_run_is_not_enough():
    with pytest.raises(ScenarioError, match="two runs or more"):
        show([RunDirectory.open(RECORDED / "sweep")], as_json=False)


def test_ratios_within_the_spread_are_in_brackets():
    from testbed.commands.compare import _ratio

    def lines(*times: float):
        return compare([result(target=reached(time)) for time in times])[0]

    assert _ratio([lines(1.0, 1.4), lines(1.1, 1.5)]) == "(1.08)"
    assert _ratio([lines(1.0, 1.1), lines(2.0, 2.2)]) == "2.00"
    assert _ratio([lines(1.0), None]) == "–"
