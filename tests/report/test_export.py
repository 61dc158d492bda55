"""CSV files: the same numbers as the run's own tables, and every column explained."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from pyarrow import parquet

import testbed
from testbed.cli import cli
from testbed.report import export
from testbed.report.export import COLUMNS, export_csv
from testbed.results.directory import RunDirectory
from testbed.results.run import Run

RECORDED = Path(__file__).parents[1] / "recorded"


@pytest.fixture(scope="module", params=["sweep", "faults"])
def run(request: pytest.FixtureRequest) -> Run:
    return testbed.open_run(RECORDED / request.param)


@pytest.fixture(scope="module")
def place(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("csv")
    export_csv(run, place, with_trace=True, with_counters=True)
    return place


def read(place: Path, name: str) -> pd.DataFrame:
    return pd.read_csv(place / f"{name}.csv", keep_default_na=False, na_values=[""])


@pytest.mark.parametrize("name", ["results", "comparison", "links", "verdicts"])
def test_small_tables_say_the_same(run: Run, place: Path, name: str) -> None:
    known = run.compare() if name == "comparison" else getattr(run, name)
    found = read(place, name)
    assert list(found) == list(known)
    assert len(found) == len(known)
    for column in known.select_dtypes("number"):
        assert found[column].tolist() == pytest.approx(known[column].tolist(), nan_ok=True), column


@pytest.mark.parametrize("name", ["metrics", "trace", "counters"])
def test_large_tables_have_every_row_of_every_cell(run: Run, place: Path, name: str) -> None:
    found = read(place, name)
    cells = [cell for cell in run.cells["cell"] if (run.directory.cell(cell) / f"{name}.parquet").is_file()]
    assert list(dict.fromkeys(found["cell"])) == cells
    own = parquet.read_schema(run.directory.cell(cells[0]) / f"{name}.parquet").names
    for cell in cells:
        stored = pd.read_parquet(run.directory.cell(cell) / f"{name}.parquet")
        rows = found[found["cell"] == cell]
        assert len(rows) == len(stored)
        for column in own:
            if pd.api.types.is_numeric_dtype(stored[column]):
                assert rows[column].tolist() == stored[column].tolist(), (cell, column)
            else:
                assert rows[column].tolist() == stored[column].astype(str).tolist(), (cell, column)


def test_lists_can_be_read_again(run: Run, place: Path) -> None:
    found = read(place, "results")
    assert [tuple(json.loads(text)) for text in found["reasons"]] == run.results["reasons"].tolist()
    assert [json.loads(text) for text in found["options"]] == run.results["options"].tolist()


def test_every_column_is_explained(run: Run, place: Path) -> None:
    explained = read(place, "columns")
    for file in place.glob("*.csv"):
        if file.name == "columns.csv":
            continue
        columns = list(pd.read_csv(file, nrows=0))
        assert explained[explained["file"] == file.name]["column"].tolist() == columns
        swept = {name for key in run.swept for name in (key, f"{key}_text")}
        assert set(columns) - swept <= set(COLUMNS[file.stem]), file.name


def test_batches_do_not_change_anything(run: Run, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROWS", 37)
    export_csv(run, tmp_path)
    assert (tmp_path / "metrics.csv").read_bytes() == (place / "metrics.csv").read_bytes()


def test_a_run_without_results(tmp_path: Path) -> None:
    empty = RunDirectory.create("empty", tmp_path / "run")
    empty.write_text("scenario.yaml", "name: empty\n")
    empty.write_json("cells.json", [])
    export_csv(Run(empty), tmp_path / "csv")
    assert list(pd.read_csv(tmp_path / "csv" / "results.csv")) == list(COLUMNS["results"])
    assert read(tmp_path / "csv", "metrics").empty


def test_the_command(tmp_path: Path) -> None:
    run, place = str(RECORDED / "faults"), tmp_path / "here"
    done = CliRunner().invoke(cli, ["export", run, "--csv", str(place)], catch_exceptions=False)
    assert done.exit_code == 0
    assert {file.name for file in place.iterdir()} == {
        f"{name}.csv" for name in ("results", "comparison", "metrics", "links", "verdicts", "columns")
    }
    assert str(place / "results.csv") in done.output
    refused = CliRunner().invoke(cli, ["export", run])
    assert refused.exit_code == 2
    assert "--csv" in refused.output
