"""`testbed scenarios`: the scenarios that come with testbed."""

from __future__ import annotations

import click

from testbed.columns import aligned
from testbed.scenario.bundled import FOLDER, bundled


@click.command("scenarios")
@click.option("--where", is_flag=True, help="Print the folder that holds them.")
def command(where: bool) -> None:
    """List the scenarios that come with testbed, and what each asks: testbed up NAME runs one."""
    click.echo(FOLDER if where else "\n".join(aligned([(one.name, one.summary) for one in bundled()])))
