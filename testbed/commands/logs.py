"""`testbed logs`: what the workers of a run printed."""

from __future__ import annotations

import click


@click.command("logs")
@click.argument("run")
@click.argument("worker", required=False)
@click.option("--cell", metavar="ID", help="Only of this cell.")
def command(run: str, worker: str | None, cell: str | None) -> None:
    """Print what the workers of a run said, of all or of one.

    RUN is its directory, or its name below runs/.
    """
    from testbed.results.listing import find
    from testbed.results.logs import show

    show(find(run), worker, cell)
