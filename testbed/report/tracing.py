"""`testbed trace`: which cells have a trace, and the chosen ones as a file for Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from pyarrow import parquet
from rich.markup import escape
from rich.table import Table

from testbed.errors import ScenarioError
from testbed.report.perfetto import Selection, write
from testbed.results.opened import Run
from testbed.results.rundir import RunDirectory
from testbed.results.stored import reading
from testbed.results.table import console_for_people

MOST_LISTED = 20


def traced(run: Run) -> list[str]:
    """Cells that have a trace, in the order of the plan."""
    return [cell for cell in run.cells.get("cell", []) if (run.directory.cell(cell) / "trace.parquet").is_file()]


def chosen(run: Run, wanted: Sequence[str]) -> list[str]:
    """Those with these ids or patterns; without any, the only one there is."""
    known = traced(run)
    if not known:
        raise ScenarioError(f"{run.path} has no trace yet", hint="its cells write one when they are done")
    if not wanted:
        if len(known) > 1:
            raise ScenarioError("which cell?", hint=f"--cell ID, or --cell '*' for all; it has {_listed(known)}")
        return known
    found: list[str] = []
    for pattern in wanted:
        like = [cell for cell in known if fnmatchcase(cell, pattern)]
        if not like:
            close = get_close_matches(pattern, known, n=1)
            raise ScenarioError(
                f"this run has no trace of a cell {pattern}" + (f"; did you mean {close[0]}?" if close else ""),
                hint=f"it has {_listed(known)}",
            )
        found += like
    return list(dict.fromkeys(found))


def write_perfetto(
    directory: RunDirectory, cells: Sequence[str], file: Path, steps: str | None, workers: str | None
) -> str:
    """What was written, in words."""
    selection, run = Selection.parse(steps, workers), Run(directory)
    written = write(run, chosen(run, cells), file, selection)
    megabytes = file.stat().st_size / 1e6
    counts = f"{written.spans} spans, {written.arrows} messages, {written.samples} samples"
    return f"{file}: {counts}, {megabytes:.1f} MB; open it in https://ui.perfetto.dev"


def show(directory: RunDirectory, cells: Sequence[str]) -> None:
    """The cells that can be looked at."""
    run, console = Run(directory), console_for_people()
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "method", "setting", "spans"):
        table.add_column(name, justify="right" if name == "spans" else "left", overflow="fold")
    for row in run.cells[run.cells["cell"].isin(chosen(run, cells or ["*"]))].itertuples():
        with reading(file := run.directory.cell(str(row.cell)) / "trace.parquet"):
            spans = parquet.read_metadata(file).num_rows
        table.add_row(escape(str(row.cell)), escape(str(row.method)), escape(str(row.setting)), str(spans))
    console.print(table)
    console.print("testbed trace RUN --cell ID --perfetto FILE.json.gz writes one", style="dim", highlight=False)


def _listed(cells: Sequence[str]) -> str:
    return ", ".join(cells[:MOST_LISTED]) + (", …" if len(cells) > MOST_LISTED else "")
