"""`testbed trace`: which cells have a trace, and the chosen ones as a file for Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from testbed.console import console_for_people
from testbed.errors import ScenarioError
from testbed.report.perfetto import Selection, write
from testbed.results.directory import RunDirectory
from testbed.results.listing import tell
from testbed.results.parquet import count_rows, there
from testbed.results.run import Run

MOST_LISTED = 20


def traced(run: Run) -> list[str]:
    """Return the cells that have a trace, in the order of the plan."""
    return [cell for cell in run.cells.get("cell", []) if there(run.directory.cell(cell) / "trace.parquet")]


def chosen(run: Run, wanted: Sequence[str]) -> list[str]:
    """Return the cells with these ids or patterns; without any, the only one there is."""
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
    """Write the file; return what was written, in words."""
    selection, run = Selection.parse(steps, workers), Run(directory)
    written = write(run, chosen(run, cells), file, selection)
    megabytes = file.stat().st_size / 1e6
    counts = f"{written.spans} spans, {written.arrows} messages, {written.samples} samples"
    return f"{file}: {counts}, {megabytes:.1f} MB; open it in https://ui.perfetto.dev"


def show(directory: RunDirectory, cells: Sequence[str]) -> None:
    """Print the cells that have a trace."""
    run, console = Run(directory), console_for_people()
    table = Table(box=None, pad_edge=False)
    for name in ("cell", "method", "setting", "spans"):
        table.add_column(name, justify="right" if name == "spans" else "left", overflow="fold")
    for row in run.cells[run.cells["cell"].isin(chosen(run, cells or ["*"]))].itertuples():
        spans = "damaged"
        with run.directory.skipping():
            spans = str(count_rows(run.directory.cell(str(row.cell)) / "trace.parquet"))
        table.add_row(escape(str(row.cell)), escape(str(row.method)), escape(str(row.setting)), spans)
    console.print(table)
    tell(run.damaged)
    console.print("testbed trace RUN --cell ID --perfetto FILE.json.gz writes one", style="dim", highlight=False)


def _listed(cells: Sequence[str]) -> str:
    return ", ".join(cells[:MOST_LISTED]) + (", …" if len(cells) > MOST_LISTED else "")


@click.command("trace")
@click.argument("run")
@click.option("--cell", "cells", multiple=True, metavar="ID", help="This cell, or all like 'v0-*'. May be repeated.")
@click.option(
    "--perfetto", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write it here; .gz is packed."
)
@click.option("--steps", metavar="FROM:TO", help="Only these steps: 10:20 is 10 to 19.")
@click.option("--workers", metavar="w0,w3", help="Only these workers.")
def command(run: str, cells: tuple[str, ...], file: Path | None, steps: str | None, workers: str | None) -> None:
    """What every worker did when, for https://ui.perfetto.dev or chrome://tracing; without --perfetto, list the cells.

    RUN is its directory, or its name below runs/. In a file of several cells all begin at the same moment.
    """
    from testbed.results.listing import find

    if file is None:
        show(find(run), cells)
    else:
        click.echo(write_perfetto(find(run), cells, file, steps, workers))
