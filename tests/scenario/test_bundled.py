"""Scenarios by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.errors import ScenarioError
from testbed.scenario.bundled import bundled, located
from testbed.scenario.load import load


def test_each_says_what_it_asks() -> None:
    assert {"quickstart", "latency-bandwidth", "flaky"} <= {one.name for one in bundled()}
    assert all(one.summary.endswith((".", "?")) for one in bundled())


def test_a_name_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load("quickstart").name == "quickstart"
    assert load("topology-zoo").resolve("abilene.graphml").is_file()


def test_a_file_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart").write_text("workers: 2\nmethods: [dpsgd]")
    assert located("quickstart") == Path("quickstart")
    assert len(load("quickstart").methods) == 1


def test_an_unknown_name_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScenarioError, match="did you mean 'quickstart'") as caught:
        load("quickstrat")
    assert "testbed scenarios" in (caught.value.hint or "")
    with pytest.raises(ScenarioError, match="no such file"):
        load("quickstrat.yaml")
