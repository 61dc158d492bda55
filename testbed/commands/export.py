"""`testbed export`: a run's results as CSV."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("export")
@click.argument("run")
@click.option(
    "--csv", "directory", is_flag=False, flag_value="", metavar="[DIR]", help="Write CSV files here. Default: RUN/csv."
)
@click.option("--trace", "with_trace", is_flag=True, help="The traces, too: every span of every worker. Large.")
@click.option("--counters", "with_counters", is_flag=True, help="What links, ports and processes counted, too.")
def command(run: str, directory: str | None, with_trace: bool, with_counters: bool) -> None:
    """Write a run's results, comparison, metrics, links and verdicts as CSV; columns.csv says what each column means.

    RUN is its directory, or its name below runs/.
    """
    from testbed.report.export import export_csv
    from testbed.results.listing import find, tell
    from testbed.results.run import Run

    if directory is None:
        raise click.UsageError("export as what? Give --csv, or --csv DIR")
    found = find(run)
    place = Path(directory) if directory else found.path / "csv"
    for file in export_csv(Run(found), place, with_trace=with_trace, with_counters=with_counters):
        click.echo(file)
    tell(found.complaints())
