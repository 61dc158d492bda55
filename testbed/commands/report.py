"""`testbed report`: write a run's report."""

from __future__ import annotations

import click

from testbed.output import say


@click.command("report")
@click.argument("run")
@click.option("--open", "opening", is_flag=True, help="Show it in the browser.")
def command(run: str, opening: bool) -> None:
    """Write a run's report: RUN/report.html, one file for browser, printer and phone, and RUN/figures/.

    RUN is its directory, or its name below runs/.
    """
    from testbed.report.write import write
    from testbed.results.listing import find, tell

    found = find(run)
    file = write(found, lambda text: say(f"note: {text}", err=True))
    tell(found.complaints())
    click.echo(file)
    if opening:
        click.launch(file.as_uri())
