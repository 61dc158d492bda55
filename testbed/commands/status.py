"""`testbed status`: what is up, and what killed runs left."""

from __future__ import annotations

import click

from testbed.network import state


@click.command("status")
def command() -> None:
    """What is up: networks, their links, what these carried."""
    from testbed.report.links import show_networks
    from testbed.runtime import engine, strays

    every = state.everything()
    show_networks(state.running(), [path.name for path, found in every if not (found and found.alive())])
    for path, found in every:
        if found and found.alive() and not found.ready:
            click.echo(f"{path.name} is being built")
    if engine.orphaned_folders():
        click.echo("containers of a run that was killed may be left: testbed down --all removes them")
    for pid, words in strays.left_over().items():
        click.echo(f"process {pid} ({words}) is left of a run that was killed: testbed down --all ends it")
