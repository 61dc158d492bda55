"""The made-up large run has what a real one has, down to keys and types: what reads one reads the other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import testbed
from testbed.bench.large_run import make
from testbed.results.directory import RunDirectory

RECORDED = Path(__file__).parents[1] / "recorded" / "sweep"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return make(tmp_path_factory.mktemp("large") / "run", workers=8, steps=50, methods=2)


def pairs(run: RunDirectory, name: str) -> tuple[Path, Path]:
    return run.path / name, RECORDED / name


CELL = "cells/v0-dpsgd-r0"


@pytest.mark.parametrize("name", ["trace", "metrics", "counters"])
def test_tables_have_the_same_columns(run: RunDirectory, name: str) -> None:
    made, real = (parquet.read_schema(file) for file in pairs(run, f"{CELL}/{name}.parquet"))
    # How many kinds of spans there are, and so the width of their codes, may differ from version to version.
    assert {f.name: str(f.type).split("<")[0] for f in made} == {f.name: str(f.type).split("<")[0] for f in real}


@pytest.mark.parametrize("name", ["trace.parquet", "counters.parquet"])
def test_tables_have_the_same_words(run: RunDirectory, name: str) -> None:
    columns = {"trace.parquet": ["kind"], "counters.parquet": ["kind", "counter"]}[name]
    words = [
        {tuple(row.values()) for row in parquet.read_table(file, columns=columns).to_pylist()}
        for file in pairs(run, f"{CELL}/{name}")
    ]
    assert words[0] == words[1]


@pytest.mark.parametrize("name", [f"{CELL}/result.json", f"{CELL}/verdict.json", "cells.json", "links.json"])
def test_json_files_have_the_same_shape(run: RunDirectory, name: str) -> None:
    made, real = (shape(json.loads(file.read_text())) for file in pairs(run, name))
    if isinstance(made, dict):  # the recorded run is older than some fields, which are empty here
        made = {key: value for key, value in made.items() if key in real or value != "NoneType"}
    assert made == real


def test_the_environment_has_the_same_keys(run: RunDirectory) -> None:
    made, real = (set(json.loads(file.read_text())) for file in pairs(run, "environment.json"))
    assert made == real


def test_the_same_files(run: RunDirectory) -> None:
    made, real = ({file.name for file in folder.iterdir()} for folder in pairs(run, CELL))
    assert made == real


def test_it_is_as_large_as_asked(run: RunDirectory) -> None:
    opened = testbed.open_run(run.path)
    assert len(opened.results) == 4 * 2
    trace = opened.trace_of("v1-dpsgd-r0")
    assert set(trace["worker"]) == set(range(8))
    assert set(trace["step"]) == set(range(50))
    assert (trace["end_ns"] >= trace["start_ns"]).all()


def test_a_step_takes_no_less_than_its_floor(run: RunDirectory) -> None:
    results = testbed.open_run(run.path).results
    assert (results["step_s"] > results["floor_s"]).all()
    parts = results[["compute_s", "codec_s", "wait_s", "mix_s", "other_s"]].sum(axis=1)
    assert parts.tolist() == pytest.approx(results["step_s"].tolist())


def shape(data: Any) -> Any:
    """Keys and kinds of values, of lists those of the first; workers' names do not matter."""
    if isinstance(data, dict):
        if data and all(key[:1] == "w" and key[1:].isdecimal() for key in data):
            return {"worker": shape(next(iter(data.values())))}
        return {key: shape(value) for key, value in data.items()}
    if isinstance(data, list):
        return [shape(data[0])] if data else []
    return "number" if isinstance(data, int | float) and not isinstance(data, bool) else type(data).__name__
