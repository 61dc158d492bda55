"""`python -m testbed.analysis.NAME RUN -o FILE`."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from recorded_runs import SWEEP

from testbed.analysis import exchange_table, memory_table, reading, scaling, winner_map
from testbed.results.run import open_run

ROOT = Path(__file__).parents[2]


def run(make, *argv):
    """Its exit code."""
    with pytest.raises(SystemExit) as end:
        reading.command(make, [str(word) for word in argv])
    return end.value.code


def test_from_the_command_line(tmp_path):
    words = [
        sys.executable,
        "-m",
        "testbed.analysis.epoch_time_vs_bandwidth",
        str(SWEEP),
        "-o",
        str(tmp_path / "fig.pdf"),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "fig.pdf").read_bytes().startswith(b"%PDF")
    assert done.stdout == f"wrote {tmp_path / 'fig.pdf'}\n"


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_formats_and_the_same_bytes_each_time(tmp_path, suffix, start):
    files = [tmp_path / place / f"map{suffix}" for place in ("a", "b")]
    for file in files:
        file.parent.mkdir()
        assert run(winner_map.draw, SWEEP, "-o", file) == 0
    assert files[0].read_bytes().startswith(start)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_a_run_lacks_is_said_in_a_sentence(tmp_path, capsys):
    assert run(scaling.draw, SWEEP, "-o", tmp_path / "fig.pdf") == 2
    assert capsys.readouterr().err.startswith("error: sweep: the number of workers was not swept\n")
    assert not (tmp_path / "fig.pdf").exists()


@pytest.mark.parametrize(("failed", "words"), [(1, "the only cell that was run"), (2, "each of the 2 cells run")])
def test_where_all_cells_failed_the_reason_is_said(tmp_path, capsys, failed, words):
    folder = shutil.copytree(SWEEP, tmp_path / "sweep")
    for number, cell in enumerate(sorted((folder / "cells").iterdir())):
        (cell / "result.json").unlink()
        if number < failed:
            text = json.dumps({"error": "w1 died", "verdict": {"grade": "invalid", "reasons": ["w1 died"]}})
            (cell / "result.json").write_text(text)
    assert run(memory_table.table, folder) == 2
    told = capsys.readouterr().err
    assert words in told
    assert "failed: w1 died\n" in told
    assert f"testbed logs {folder}" in told


def test_memory_that_is_not_told_apart_is_no_difference(tmp_path):
    folder = shutil.copytree(SWEEP, tmp_path / "sweep")
    megabytes = {"allreduce": 20.0, "dpsgd": 19.7, "powergossip": 17.0, "choco-compressor-sign": 22.5}
    for cell in (folder / "cells").iterdir():
        result = json.loads((cell / "result.json").read_text())
        own = megabytes.get(cell.name.split("-", 1)[1].rpartition("-")[0])
        result["memory_per_worker"] = None if own is None else 1e6 * own
        (cell / "result.json").write_text(json.dumps(result))
    found = memory_table.table(open_run(folder)).set_index("method")["difference from all-reduce, MB"]
    assert found.dropna().to_dict() == {"powergossip": -3.0, "choco sign": 2.5}


def old(recorded, folder):
    """As it was before results had an exchange."""
    for cell in (shutil.copytree(recorded, folder) / "cells").iterdir():
        result = json.loads((cell / "result.json").read_text())
        del result["exchange_s"]
        (cell / "result.json").write_text(json.dumps(result))
    return folder


def test_exchanges_are_compared_with_their_floors(tmp_path):
    assert run(exchange_table.table, SWEEP) == 0
    assert run(exchange_table.table, old(SWEEP, tmp_path / "old")) == 2, "from before traces knew when messages arrive"
    folder = shutil.copytree(SWEEP, tmp_path / "sweep")
    for cell in (folder / "cells").iterdir():
        result = json.loads((cell / "result.json").read_text())
        result["exchange_s"], result["floor_s"], result["parts_s"]["codec"] = 0.012, 0.008, 0.002
        result["step_s"], result["least_s"], result["exchange_spread_s"] = 0.060, 0.050, 0.001
        result["pacing"] = {"edges": 16, "paced": 0.5, "least": 1e6, "median": 1.25e6, "most": 2e6}
        (cell / "result.json").write_text(json.dumps(result))
    found = exchange_table.table(open_run(folder))
    assert len(found) == len(open_run(folder).compare())
    assert set(found["(exchange + codec) / (floor + codec)"]) == {1.4}
    assert set(found["step / least"]) == {1.2}
    assert set(found["±"]) == {1.0}
    assert set(found["paced"]) == {"50% at 10 Mbit/s"}
    assert found["method"].tolist()[:2] == ["allreduce", "dpsgd"]


def test_other_mistakes(tmp_path, capsys):
    assert run(winner_map.draw, tmp_path) == 2
    assert "is not a run directory" in capsys.readouterr().err
    assert run(winner_map.draw, SWEEP, "-o", tmp_path / "fig.gif") == 2
    assert ".pdf, .png, .svg" in capsys.readouterr().err


def test_tables_are_printed_or_written(tmp_path, capsys):
    assert run(memory_table.table, SWEEP) == 0
    assert "MB per worker" in capsys.readouterr().out
    assert run(memory_table.table, SWEEP, "-o", tmp_path / "memory.csv") == 0
    written = pd.read_csv(tmp_path / "memory.csv")
    assert written["method"].tolist() == memory_table.table(open_run(SWEEP))["method"].tolist()


def test_tables_in_every_format():
    frame = pd.DataFrame({"method": ["a_b", "c"], "share": ["5%", None]})
    assert reading.as_text(frame, ".md").splitlines() == ["| method | share |", "|---|---|", "| a_b | 5% |", "| c |  |"]
    assert r"a\_b & 5\% \\" in reading.as_text(frame, ".tex")
    assert "<td>a_b</td>" in reading.as_text(frame, ".html")
    assert '"share":null' in reading.as_text(frame, ".json")


def test_settings_in_words():
    assert reading.pretty("latency=0.13ms rate=1gbit") == "latency 0.13 ms · rate 1 Gbit/s"
    assert reading.pretty("topology=ring loss=0.1%") == "topology ring · loss 0.1%"
    assert reading.pretty("") == ""
    assert [reading.short(value) for value in (0.01234, 12.34, 999.6, 12345.6)] == ["0.0123", "12.3", "1,000", "12,346"]
