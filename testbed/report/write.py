"""Writes a run's report. `testbed report` and the end of `testbed up` call it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.report import figures, page
from testbed.results.directory import RunDirectory
from testbed.results.run import Run

NAME = "report.html"


def write(run: RunDirectory, say: Callable[[str], None]) -> Path:
    """Write RUN/report.html and RUN/figures/; `say` gets what could not be drawn."""
    opened = Run(run)
    with run.writing():
        drawn = figures.draw_all(opened, say, {"network_map": {"point": page.telling_point(opened)}})
    run.write_text(NAME, page.render(opened, drawn))
    return run.path / NAME
