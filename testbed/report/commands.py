"""`testbed report` and `testbed compare`. The command line registers them; imports inside, so that it starts fast."""

from __future__ import annotations

import click


def register(group: click.Group) -> None:
    """Make them commands of `testbed`."""
    for command in (report, compare):
        group.add_command(command)


@click.command()
@click.argument("run")
@click.option("--open", "opening", is_flag=True, help="Show it in the browser.")
def report(run: str, opening: bool) -> None:
    """Write a run's report: RUN/report.html, one file for browser, printer and phone, and RUN/figures/.

    RUN is its directory, or its name below runs/.
    """
    from testbed.report.write import write
    from testbed.results.listing import find

    file = write(find(run), lambda text: click.echo(f"note: {text}", err=True))
    click.echo(file)
    if opening:
        click.launch(file.as_uri())


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def compare(runs: tuple[str, ...], as_json: bool) -> None:
    """Compare runs: what differs between their scenarios, and each method's times side by side.

    RUN is a directory, or a name below runs/.
    """
    from testbed.report.across import show
    from testbed.results.listing import find

    show([find(run) for run in runs], as_json=as_json)
