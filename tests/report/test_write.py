"""Writing a report, by itself and at the end of a run."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from results.made import make_run

from testbed.answer.inputs import show_answer
from testbed.cli import cli
from testbed.commands.up import _report
from testbed.errors import StorageError
from testbed.report import figures
from testbed.report.write import write
from testbed.results.directory import RunDirectory

RECORDED = Path(__file__).parent.parent / "recorded"


def test_the_command_writes_the_page_and_says_where(tmp_path):
    run = make_run(tmp_path)  # one cell done, one failed, one missing; no traces, no metrics
    done = CliRunner().invoke(cli, ["report", str(run.path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout == f"{run.path / 'report.html'}\n"
    assert "all-reduce" in (run.path / "report.html").read_text()


def test_a_run_ends_with_its_answer_and_where_the_report_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figures, "draw_all", lambda *_: [])
    run = RunDirectory.open(shutil.copytree(RECORDED / "sweep", tmp_path / "run"))
    show_answer(run)
    _report(run)
    told = capsys.readouterr().out
    assert told.lstrip().startswith("On 4 workers in a ring, ")
    assert told.endswith(f"report: {run.path}/report.html\n")
    assert (run.path / "report.html").is_file()


@pytest.mark.parametrize("broken", ["testbed.report.page.render", "testbed.report.figures.draw_all"])
def test_what_goes_wrong_in_drawing_is_told_and_costs_nothing_else(tmp_path, monkeypatch, capsys, broken):
    def fails(*_: object) -> None:
        raise ZeroDivisionError("no room")

    monkeypatch.setattr(broken, fails)
    run = make_run(tmp_path)
    assert not _report(run), "which the exit code tells"
    told = capsys.readouterr().err
    assert "warning: no report was written: ZeroDivisionError: no room" in told
    assert f"testbed report {run.path}" in told


def test_a_figure_that_fails_is_left_out_and_told(tmp_path, monkeypatch):
    from testbed.analysis import catalogue, network_map

    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no room")

    monkeypatch.setattr(network_map, "draw", fails)
    monkeypatch.setattr(catalogue, "FIGURES", ("network_map", "emulation", "scaling"))
    from testbed.results.run import open_run

    said: list[str] = []
    run = open_run(shutil.copytree(RECORDED / "faults", tmp_path / "run"))
    drawn = figures.draw_all(run, said.append, {})
    assert [one.name for one in drawn] == ["emulation"]  # nothing was swept, so nothing scales
    assert said == ["the figure network_map could not be drawn: ZeroDivisionError: no room"]
    assert sorted(file.name for file in (run.path / "figures").iterdir()) == ["emulation.pdf", "emulation.png"]
    assert 'id="emulation-' in drawn[0].svg


@pytest.mark.parametrize(("refusal", "helps"), [(errno.EROFS, "make it writable"), (errno.ENOSPC, "make room")])
def test_a_place_that_cannot_be_written_to_is_told_once(tmp_path, monkeypatch, refusal, helps):
    from testbed.analysis import style

    def fails(*_: object) -> None:
        raise OSError(refusal, "it says no")

    monkeypatch.setattr(style, "save", fails)
    said: list[str] = []
    run = RunDirectory.open(shutil.copytree(RECORDED / "faults", tmp_path / "run"))
    with pytest.raises(StorageError, match=f"cannot write to {run.path}") as told:
        write(run, said.append)
    assert said == []
    assert helps in (told.value.hint or "")
