"""docs/extending.md: its examples are taken from the page, checked as users would, and really train."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.cli import cli
from testbed.methods import make
from testbed.plan.make import plan, with_methods_checked
from testbed.run.jobs import training
from testbed.scenario.load import load
from testbed.tasks.base import make as make_task
from testbed.worker.memory import run_in_memory

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
FILES = {name: text for text, name in re.findall(r"```\w+\n(# (\S+\.(?:py|yaml))\n.*?)```", PAGE, re.DOTALL)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("own")
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


def test_the_page_has_them_all():
    assert list(FILES) == ["ternary.py", "ternary.yaml", "local_gossip.py", "local-gossip.yaml", "in_memory.py"]


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_its_scenarios_train(folder, name):
    made = with_methods_checked(plan(load(folder / name)))
    scenario = made.variants[0]
    for cell in made.cells:
        method = make({cell.method: dict(cell.options)}, folder)
        gossip = made.points[cell.point].gossip
        results = run_in_memory(gossip.size, method, digits, gossip, training(scenario), seed=cell.seed)
        reached = [metric.value for metric in results[0].metrics if metric.metric == "test_accuracy"]
        assert reached[-1] > 0.85, cell.method
        if cell.method == "local_gossip.py:LocalGossip":
            exchanges = scenario.training.steps // method.period
            assert sum(results[0].bytes_sent.values()) == 2 * exchanges * 4 * 8970  # two neighbours, the whole model


def digits(rank, size, seed):
    return make_task("digits", rank=rank, size=size, seed=seed)


def test_the_compressor_keeps_its_promises(folder):
    for spec in (f"{folder}/ternary.py:Ternary", f"{{{folder}/ternary.py:Ternary: {{clip: 2.5}}}}"):
        result = CliRunner().invoke(cli, ["compressors", spec, "--check"])
        assert result.exit_code == 0, result.output
    assert "0.201 bytes per element" in result.output


def test_the_method_is_explained(folder):
    result = CliRunner().invoke(cli, ["methods", f"{folder}/local_gossip.py:LocalGossip"])
    assert "x_i ← Σ_j w_ij x_j" in result.output
    assert "period = 4: steps between exchanges" in result.output
    assert "Paper: Li et al. 2019" in result.output


def test_the_program_runs(folder):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "in_memory.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr
    assert "test_loss" in run.stdout


def test_files_it_names_exist():
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert len(links) > 5
    for link in links:
        assert (ROOT / "docs" / link).exists(), link
