"""Prints the logs of a run's workers, for `testbed logs`."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from pathlib import Path

import click

from testbed.errors import ScenarioError, StorageError
from testbed.output import printable, say
from testbed.results.directory import RunDirectory
from testbed.results.listing import tell
from testbed.safe_files import open_regular

MOST = 16 << 20  # bytes of one log that are shown: its end
LARGEST = 1 << 50


def show(run: RunDirectory, worker: str | None, cell: str | None) -> None:
    """Print the logs with a heading each; empty ones are left out unless one is asked for. On a terminal escape
    sequences are shown, not obeyed; a file or a pipe gets the logs unchanged."""
    on_terminal = sys.stdout.isatty()
    files = logs(run, worker, cell)
    spoke = False
    for file in files:
        text = ""
        with run.skipping():
            text = read(file).rstrip("\n")
        if text:
            spoke = True
            say(f"── {file.parent.parent.name} {file.stem}", dim=True)
            print(printable(text) if on_terminal else text)
    tell(run.complaints())
    if not spoke:
        click.echo(f"nothing was said in {len(files)} logs" if files else "no cell has begun yet", err=True)


def read(file: Path, most: int = MOST) -> str:
    """Return the end of a log, at most that many bytes of it. DamagedError where it is not a log."""
    try:
        fd = open_regular(file, most=LARGEST, follow=True)
    except FileNotFoundError:
        return ""
    with os.fdopen(fd, "rb") as opened:
        before = max(0, os.fstat(fd).st_size - most)
        opened.seek(before)
        text = opened.read(most).decode(errors="replace")
    return f"… {before} bytes before this are left out …\n{text}" if before else text


def logs(run: RunDirectory, worker: str | None, cell: str | None) -> list[Path]:
    """Return the files, cells in the order of the plan."""
    cells = [one.id for one in run.cells()]
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
    """Sort w2 before w10."""
    try:
        return sorted(folder.glob("*.log"), key=lambda file: (len(file.stem), file.stem))
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror}") from error


def _unknown(what: str, name: str, known: list[str]) -> ScenarioError:
    close = get_close_matches(name, known, n=1)
    return ScenarioError(
        f"this run has no {what} {name}" + (f"; did you mean {close[0]}?" if close else ""),
        hint=f"it has {', '.join(known[:20])}{', …' if len(known) > 20 else ''}",
    )
