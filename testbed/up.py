"""`testbed up`: from a scenario file to a run directory and the comparison table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from testbed.errors import ScenarioError

FAILED, INVALID = 5, 6  # exit codes: a cell failed; no cell failed but some emulation was not faithful at all


@dataclass(frozen=True)
class Request:
    """The command's arguments."""

    file: Path
    sets: Sequence[str] = ()
    out: Path | None = None
    resume: Path | None = None
    box: str | None = None
    only: Sequence[str] = ()
    dry_run: bool = False
    calibrating: bool = True


def up(request: Request) -> int:
    """Run it; the exit code."""
    from testbed import planview
    from testbed.plan import plan, with_methods_checked
    from testbed.scenario.load import load

    scenario = load(request.file, request.sets)
    made = with_methods_checked(plan(scenario))
    for warning in made.warnings:
        click.echo(f"note: {warning}", err=True)
    if request.dry_run:
        planview.show(made)
        return 0
    chosen = [cell for cell in made.cells if not request.only or cell.method in request.only]
    if not chosen:
        known = ", ".join(dict.fromkeys(cell.method for cell in made.cells))
        raise ScenarioError(f"no method of this scenario is called {' or '.join(request.only)} (it has {known})")

    from testbed.controller import Controller, Options, describe_cells, incomplete
    from testbed.live import LiveView, PlainView, show_comparison
    from testbed.results.comparison import compare
    from testbed.results.rundir import RunDirectory
    from testbed.scenario.load import dump

    run = RunDirectory.open(request.resume) if request.resume else RunDirectory.create(scenario.name, request.out)
    if request.resume:
        missing = {cell.id for cell in incomplete(made, run)}
        chosen = [cell for cell in chosen if cell.id in missing]
        click.echo(f"{len(chosen)} of {len(made.cells)} cells are missing")
    else:
        (run.path / "scenario.yaml").write_text(dump(scenario))
        run.write_json("cells.json", describe_cells(made))
    view = LiveView() if sys.stdout.isatty() else PlainView()
    try:
        Controller(made, run, Options(request.box or scenario.box, request.calibrating), view).run(chosen)
    finally:
        view.close()
    results = list(run.results())
    show_comparison(compare(results))
    click.echo(f"everything is in {run.path}")
    if any(result["error"] for result in results):
        return FAILED
    return INVALID if any(result["verdict"]["grade"] == "invalid" for result in results) else 0
