"""The scenarios that come along: all of them plan, in full and in every profile, and every small one really trains."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.methods import make as make_method
from testbed.plan.make import plan, with_methods_checked
from testbed.run.jobs import training
from testbed.scenario.load import load
from testbed.scenario.read import read
from testbed.tasks import datasets, spec, store
from testbed.tasks.base import Task
from testbed.tasks.no_data import BareTask
from testbed.worker.job import Compute
from testbed.worker.memory import run_in_memory

FOLDER = Path(__file__).parents[2] / "scenarios"
FILES = sorted(FOLDER.glob("*.yaml"))
PROFILES = [(file, name) for file in FILES for name in (read(file.read_text(), file.name).data.get("profiles") or {})]
SMALL = [file for file, name in PROFILES if name == "small"]
EMULATED = Compute("emulated", 0.0)


def called(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value)


def test_there_is_something_to_test():
    assert len(FILES) >= 17
    assert len(SMALL) >= 14


@pytest.mark.parametrize("file", FILES, ids=called)
def test_every_scenario_plans_and_is_called_like_its_file(file):
    made = with_methods_checked(plan(load(file)))
    assert made.cells
    assert made.name == file.stem


@pytest.mark.parametrize(("file", "profile"), PROFILES, ids=called)
def test_every_profile_plans(file, profile):
    made = with_methods_checked(plan(load(file, profile=profile), cores=2))
    assert made.cells
    assert made.name == f"{file.stem}-{profile}"
    assert not [warning for warning in made.warnings if "slow each other down" in warning or "carry" in warning]


@pytest.mark.parametrize("file", SMALL, ids=called)
def test_files_with_profiles_say_what_they_are_about(file):
    """At their top, before anything else."""
    head = file.read_text().split("\nname:")[0]
    for word in ("# Asks: ", "# From: ", "# Expect: ", "# Takes: ", "--profile small"):
        assert word in head


@pytest.mark.parametrize("file", SMALL, ids=called)
def test_a_small_profile_asks_the_same_question(file):
    """The same graphs and kinds of method, on no more data than the full form."""
    full, small = load(file), load(file, profile="small")
    assert small.network.graph == full.network.graph
    assert small.gossip == full.gossip
    assert {method.name for method in small.methods} == {method.name for method in full.methods}
    assert small.training.steps < full.training.steps


@pytest.mark.slow
@pytest.mark.parametrize("file", SMALL, ids=called)
def test_each_small_profile_trains(file):
    """Two steps of the first cell of each method, in memory: what neither the schema nor the plan can know."""
    made = plan(load(file, profile="small"))
    known = made.variants[0]
    task = spec.resolve(known.task.spec)
    here = task.data is None or store.present(datasets.find(task.data))
    emulated = known.compute.emulated is not None or not here  # without its data, messages of the model's size

    def make_task(rank: int, size: int, seed: int) -> Task:
        if emulated:
            return BareTask(task, rank=rank, seed=seed)
        return spec.make(task, rank=rank, size=size, seed=seed)

    few = replace(training(known), steps=2, eval_every=2, compute=EMULATED if emulated else Compute())
    cells = {cell.method: cell for cell in reversed(made.cells)}
    for cell in cells.values():
        method = make_method({cell.method: dict(cell.options)}, known.resolve("."))
        gossip = made.points[cell.point].gossip
        results = run_in_memory(gossip.size, method, make_task, gossip, few, seed=cell.seed)
        assert len(results) == gossip.size
        assert all(sum(result.bytes_sent.values()) > 0 for result in results)
        assert emulated or all(any(m.metric == "test_loss" for m in result.metrics) for result in results)


def test_the_traces_are_what_their_generator_makes(tmp_path):
    copy = tmp_path / "mobile_trace.py"
    copy.write_text((FOLDER / "mobile_trace.py").read_text())
    subprocess.run([sys.executable, copy], check=True, timeout=60)
    for name in ("mobile-a.csv", "mobile-b.csv"):
        assert (tmp_path / name).read_text() == (FOLDER / name).read_text()
