"""The table of columns: a number that has a row there is in every table."""

from __future__ import annotations

import importlib
import io

import pytest
from rich.console import Console

from testbed.report import export, tables
from testbed.results import columns
from testbed.results.table import show_comparison

from .made import cell_result, compare
from .test_comparison import result


@pytest.fixture
def with_another(monkeypatch: pytest.MonkeyPatch):
    """A field of CellResult that has no row gets one: nothing else."""
    row = columns.measured("box_share", "share of a processor", heading="box, %", place=35, factor=100, form="{:.0f}")
    monkeypatch.setattr(columns, "COLUMNS", (*columns.COLUMNS, row))
    yield
    monkeypatch.undo()
    importlib.reload(export)


def test_a_row_puts_a_number_into_all_tables(with_another):
    found = [result("dpsgd", box_share=share) for share in (0.25, 0.35)]
    (line,) = lines = compare(found)
    assert line.measured == {"box_share": pytest.approx(0.3)}
    page = tables.comparison(lines)
    assert page.rows[0].cells[[one.name for one in page.columns].index("box, %")] == tables.Cell(
        "30", line.measured["box_share"]
    )
    console = Console(file=io.StringIO(), width=180)
    show_comparison(lines, console)
    assert "box, %" in console.file.getvalue()
    assert "box, %: share of a processor." in " ".join(console.file.getvalue().split())
    assert columns.cell_row(cell_result(found[0]))["box_share"] == 0.25
    importlib.reload(export)
    assert export.meaning("results", "box_share") == export.meaning("comparison", "box_share") == "share of a processor"


def test_every_number_means_something_and_has_one_row():
    keys = [column.key for column in columns.COLUMNS]
    assert len(set(keys)) == len(keys)
    assert all(column.meaning for column in columns.COLUMNS)
    places = [column.place for column in columns.COLUMNS if column.heading]
    assert len(set(places)) == len(places)
    assert 0 not in places


def test_a_line_has_all_that_a_comparison_is_said_to_have():
    (line,) = compare([result("dpsgd")])
    for column in columns.COLUMNS:
        if column.compared:
            column.of(line)
