"""A run as tables: what they say is what the files say."""

import json
import math

import pandas as pd
import pytest
from recorded_runs import FAULTS, SWEEP, change, copy

from testbed.errors import ScenarioError, StorageError
from testbed.results.comparison import compare
from testbed.results.run import open_run

from .made import diverged, make_run

CELL = "v3-dcd-compressor-quantize-8bit-r0"


@pytest.fixture(scope="module")
def run():
    return open_run(SWEEP)


def stored(name, cell=CELL):
    return pd.read_parquet(SWEEP / "cells" / cell / name)


def test_only_runs_are_opened(tmp_path):
    with pytest.raises(ScenarioError, match="is not a run directory") as error:
        open_run(tmp_path)
    assert "testbed runs" in error.value.hint


def test_cells_say_what_they_are(run):
    row = run.cells.set_index("cell").loc[CELL]
    assert (row["method"], row["family"], row["repeat"], row["seed"]) == ("dcd quantize 8bit", "dcd", 0, 1)
    assert (row["latency"], row["latency_text"]) == (0.025, "25ms")
    assert (row["rate"], row["rate_text"]) == (1e7, "10mbit")
    assert run.swept == ["latency", "rate"]
    assert len(run.cells) == 20


def test_results_are_those_of_the_files(run):
    row = run.results.set_index("cell").loc[CELL]
    result = json.loads((SWEEP / "cells" / CELL / "result.json").read_text())
    assert row["step_s"] == result["step_s"]
    assert row["wait_s"] == result["parts_s"]["wait"]
    assert row["test_accuracy"] == result["final"]["test_accuracy"]
    assert row["target_s"] == result["target"]["seconds"]
    assert row["verdict"] == "faithful"


@pytest.mark.parametrize(("table", "file"), [("metrics", "metrics"), ("trace", "trace"), ("counters", "counters")])
def test_tables_hold_every_row_of_every_cell(run, table, file):
    found = getattr(run, table)
    own = stored(f"{file}.parquet")
    here = found[found["cell"] == CELL].reset_index(drop=True)
    pd.testing.assert_frame_equal(here[list(own)].astype(object), own.astype(object), check_dtype=False)
    assert set(here["method"]) == {"dcd quantize 8bit"}
    assert set(here["rate"]) == {1e7}
    assert set(found["cell"]) == set(run.cells["cell"])


def test_one_cells_trace_with_columns_and_kinds(run):
    own = stored("trace.parquet")
    found = run.trace_of(CELL, ["step", "end_ns"], kinds=["wait", "send"])
    assert list(found) == ["step", "end_ns"]
    expected = own[own["kind"].isin(["wait", "send"])]
    assert found["end_ns"].tolist() == expected["end_ns"].tolist()


def test_a_cell_without_a_trace_is_said(run, tmp_path):
    with pytest.raises(ScenarioError, match="no cell v9"):
        run.trace_of("v9")
    made = open_run(make_run(tmp_path).path)
    with pytest.raises(StorageError, match="v0-choco-r0 has no trace"):
        made.trace_of("v0-choco-r0")


def test_time_by_kind_adds_up(run):
    own = stored("trace.parquet")
    own["seconds"] = (own["end_ns"] - own["start_ns"]) / 1e9
    expected = own.groupby(["worker", "kind"], observed=True)["seconds"].sum()
    found = run.time_by_kind
    here = found[found["cell"] == CELL].set_index(["worker", "kind"])
    assert len(here) == len(expected)
    for key, seconds in expected.items():
        assert here.loc[key, "seconds"] == pytest.approx(seconds)


def test_metrics_by_step_are_of_the_workers_own_models(run):
    own = stored("metrics.parquet")
    last = own[(own["metric"] == "test_loss") & (own["step"] == 30)]
    found = run.metrics_by_step
    row = found[(found["cell"] == CELL) & (found["metric"] == "test_loss") & (found["step"] == 30)].iloc[0]
    workers = last[last["worker"] >= 0]
    assert row["value"] == pytest.approx(workers["value"].mean())
    assert row["time_s"] == workers["time_s"].max()
    assert row["bytes_sent"] == pytest.approx(workers["bytes_sent"].mean())
    assert row["value"] != pytest.approx(last[last["worker"] < 0]["value"].iloc[0])


def test_what_only_the_average_has_is_shared_among_the_workers(run):
    own = stored("metrics.parquet")
    average = own[(own["metric"] == "consensus") & (own["step"] == 30)].iloc[0]
    found = run.metrics_by_step
    row = found[(found["cell"] == CELL) & (found["metric"] == "consensus") & (found["step"] == 30)].iloc[0]
    assert row["value"] == average["value"]
    assert row["bytes_sent"] == pytest.approx(average["bytes_sent"] / 4)


def test_links_are_judged_one_by_one(tmp_path):
    path = copy(SWEEP, tmp_path)
    points = json.loads((path / "links.json").read_text())
    probe = points[-1]["probes"][0]
    probe["there"]["goodput"] *= 0.95  # 5 % off: suspect
    (path / "links.json").write_text(json.dumps(points))
    links = open_run(path).links
    here = links[links["point"] == points[-1]["point"]]
    assert len(here) == 2 * len(points[-1]["probes"])
    bad = here[here["grade"] != "faithful"]
    assert bad["link"].tolist() == [f"{probe['source']}>{probe['target']}"]
    assert bad["grade"].tolist() == ["suspect"]
    assert set(here["setting"]) == {points[-1]["label"]}
    assert set(here["rate"]) == {float(probe["there"]["rate"])}


def test_compare_is_the_reports_table(run):
    lines = compare(list(run.raw.values()))
    found = run.compare()
    assert found["method"].tolist() == [line.method for line in lines]
    assert found["step_s"].tolist() == [line.step_s for line in lines]
    assert found["wait_s"].tolist() == [line.parts_s["wait"] for line in lines]
    assert found["rate"].tolist()[:5] == [1e8] * 5


def test_failed_cells_are_there_and_say_why():
    run = open_run(FAULTS)
    failed = run.results[run.results["verdict"] == "failed"]
    assert set(failed["method"]) == {"allreduce"}
    assert failed["error"].str.contains("w3").all()
    assert failed["step_s"].isna().all()
    reasons = run.verdicts[run.verdicts["cell"] == "v0-allreduce-r0"]
    assert set(reasons["grade"]) == {"invalid"}


def test_a_run_that_has_just_begun_has_empty_tables(tmp_path):
    run = open_run(make_run(tmp_path).path)
    for cell in ("v0-allreduce-r0", "v0-dpsgd-r0"):
        (run.path / "cells" / cell / "result.json").unlink()
    (run.path / "links.json").unlink()
    for table in ("results", "metrics", "trace", "counters", "verdicts", "links", "time_by_kind", "metrics_by_step"):
        assert getattr(run, table).empty
    assert run.compare().empty
    assert len(run.cells) == 3
    assert repr(run) == "<run toy-1: 0 of 3 cells>"


def test_a_failed_cell_does_not_hide_numbers_of_others(tmp_path):
    run = open_run(make_run(tmp_path).path)
    assert run.results["verdict"].tolist() == ["suspect", "failed"]
    assert math.isnan(run.results["step_s"][1])


def test_a_cell_that_diverged_says_at_which_step(tmp_path):
    made = make_run(tmp_path)
    made.write_json("cells/v0-dpsgd-r0/result.json", diverged())
    run = open_run(made.path)
    assert run.results["verdict"].tolist() == ["suspect", "diverged"]
    assert run.results["diverged_step"][1] == 86
    assert run.compare()["diverged"].tolist() == [0, 1]


def test_emulated_gradients_are_known(tmp_path):
    assert open_run(SWEEP).learns
    path = copy(SWEEP, tmp_path)
    file = path / "scenario.yaml"
    file.write_text(file.read_text().replace("step_time", "emulated"))
    assert not open_run(path).learns


def test_verdicts_have_a_row_per_reason(tmp_path):
    path = copy(SWEEP, tmp_path)
    change(path, CELL, verdict={"grade": "suspect", "reasons": ["one", "two"]})
    verdicts = open_run(path).verdicts
    assert verdicts[verdicts["cell"] == CELL]["reason"].tolist() == ["one", "two"]
    assert len(verdicts) == 21
