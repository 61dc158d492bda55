"""`testbed logs`: what the workers of a run's cells said."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import click

from testbed.errors import ScenarioError
from testbed.results.rundir import RunDirectory


def show(run: RunDirectory, worker: str | None, cell: str | None) -> None:
    """The logs with a heading each; those of workers that said nothing are left out unless one is asked for."""
    files = logs(run, worker, cell)
    spoken = [file for file in files if file.stat().st_size]
    for file in spoken:
        click.secho(f"── {file.parent.parent.name} {file.stem}", dim=True)
        click.echo(file.read_text(errors="replace").rstrip("\n"))
    if not spoken:
        click.echo(f"nothing was said in {len(files)} logs" if files else "no cell has begun yet", err=True)


def logs(run: RunDirectory, worker: str | None, cell: str | None) -> list[Path]:
    """The files, cells in the order of the plan."""
    cells = [one["id"] for one in run.read_json("cells.json", [])]
    if cell is not None and cell not in cells:
        raise _unknown("cell", cell, cells)
    found = [file for one in ([cell] if cell else cells) for file in _sorted(run.cell(one) / "logs")]
    if worker is None:
        return found
    chosen = [file for file in found if file.stem == worker]
    if found and not chosen:
        raise _unknown("worker", worker, list(dict.fromkeys(file.stem for file in found)))
    return chosen


def _sorted(folder: Path) -> list[Path]:
    """w2 before w10."""
    return sorted(folder.glob("*.log"), key=lambda file: (len(file.stem), file.stem))


def _unknown(what: str, name: str, known: list[str]) -> ScenarioError:
    close = get_close_matches(name, known, n=1)
    return ScenarioError(
        f"this run has no {what} {name}" + (f"; did you mean {close[0]}?" if close else ""),
        hint=f"it has {', '.join(known[:20])}{', …' if len(known) > 20 else ''}",
    )
