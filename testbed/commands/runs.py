"""`testbed runs`: which runs there are, and how far each got."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("runs")
@click.argument("directory", type=click.Path(path_type=Path), default=Path("runs"), metavar="[DIR]")
def command(directory: Path) -> None:
    """List the runs in a directory (default: runs): when, how far, how faithful."""
    from testbed.results.listing import show

    show(directory)
