"""`testbed trace` and `testbed export`. The command line registers them; imports are inside so that it starts fast."""

from __future__ import annotations

from pathlib import Path

import click


def register(group: click.Group) -> None:
    """Make them commands of `testbed`."""
    for command in (trace, export):
        group.add_command(command)


@click.command()
@click.argument("run")
@click.option("--cell", "cells", multiple=True, metavar="ID", help="This cell, or all like 'v0-*'. May be repeated.")
@click.option(
    "--perfetto", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write it here; .gz is packed."
)
@click.option("--steps", metavar="FROM:TO", help="Only these steps: 10:20 is 10 to 19.")
@click.option("--workers", metavar="w0,w3", help="Only these workers.")
def trace(run: str, cells: tuple[str, ...], file: Path | None, steps: str | None, workers: str | None) -> None:
    """What every worker did when, for https://ui.perfetto.dev or chrome://tracing; without --perfetto, list the cells.

    RUN is its directory, or its name below runs/. In a file of several cells all begin at the same moment.
    """
    from testbed.report.tracing import show, write_perfetto
    from testbed.results.listing import find

    if file is None:
        show(find(run), cells)
    else:
        click.echo(write_perfetto(find(run), cells, file, steps, workers))


@click.command()
@click.argument("run")
@click.option(
    "--csv", "directory", is_flag=False, flag_value="", metavar="[DIR]", help="Write CSV files here. Default: RUN/csv."
)
@click.option("--trace", "with_trace", is_flag=True, help="The traces, too: every span of every worker. Large.")
@click.option("--counters", "with_counters", is_flag=True, help="What links, ports and processes counted, too.")
def export(run: str, directory: str | None, with_trace: bool, with_counters: bool) -> None:
    """Write a run's results, comparison, metrics, links and verdicts as CSV; columns.csv says what each column means.

    RUN is its directory, or its name below runs/.
    """
    from testbed.report.export import export_csv
    from testbed.results.listing import find
    from testbed.results.opened import Run

    if directory is None:
        raise click.UsageError("export as what? Give --csv, or --csv DIR")
    found = find(run)
    place = Path(directory) if directory else found.path / "csv"
    for file in export_csv(Run(found), place, with_trace=with_trace, with_counters=with_counters):
        click.echo(file)
