"""`testbed train`: one line to a trained model."""

import json

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.errors import ScenarioError
from testbed.worker.local import gossip_named, method_spec


def run(*words: str):
    return CliRunner().invoke(cli, ["train", *words], catch_exceptions=True)


def test_prints_a_table():
    done = run("--local", "3", "--method", "choco", "--compressor", "sign", "-o", "gamma=0.4", "--steps", "5")
    assert done.exit_code == 0, done.output
    lines = [line for line in done.output.splitlines() if "│" in line]
    assert [line.split("│")[1].strip() for line in lines] == ["w0", "w1", "w2", "average"]
    assert "accuracy" in done.output


def test_prints_json(tmp_path):
    done = run("--local", "2", "--steps", "4", "--task", "quadratic", "--json", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    content = json.loads(done.output)
    assert [line["worker"] for line in content["workers"]] == ["w0", "w1"]
    assert content["average"]["loss"] < float("inf")
    assert content["workers"][0]["bytes_per_step"] > 0
    assert (tmp_path / "trace.parquet").exists()


def test_mistakes_are_explained():
    assert isinstance(run("--local", "2", "--method", "chocco").exception, ScenarioError)
    assert isinstance(run("--local", "2", "-o", "gamma").exception, ScenarioError)
    assert isinstance(run("--local", "2", "--compressor", "{topk: 1%").exception, ScenarioError)


def test_words_become_specs():
    assert method_spec("dpsgd", None, []) == "dpsgd"
    assert method_spec("choco", "{topk: 1%}", ["gamma=0.4"]) == {"choco": {"compressor": {"topk": "1%"}, "gamma": 0.4}}


def test_gossip_by_name():
    assert gossip_named("ring", 4, 1).sources(0, 0) == (1, 3)
    assert not gossip_named("one-peer-exponential", 4, 1).static
    with pytest.raises(ScenarioError):
        gossip_named("rung", 4, 1)
