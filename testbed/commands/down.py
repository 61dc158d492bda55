"""`testbed down`: end networks, and remove what killed runs left."""

from __future__ import annotations

import click

from testbed.errors import MissingError, NetworkError, TestbedError
from testbed.network import state


def end(name: str | None, *, everything: bool) -> None:
    """End the named network, the only one, or all of them with whatever crashed ones left."""
    if everything:
        _end_all()
        return
    if name is None:
        name = state.pick(None).name
    directory = state.place(name)
    if not (directory / "state.json").is_file():
        names = ", ".join(path.name for path, _ in state.everything()) or "none"
        raise NetworkError(f"there is no network named {name} (there are: {names})")
    state.end(directory, state.find(name))
    click.echo(f"{name} is down")


def _end_all() -> None:
    """End all networks; one that cannot be ended must not keep the others up."""
    from testbed.runtime import cgroups, engine, strays

    failed: list[TestbedError] = []
    for directory, found in state.everything():
        try:
            state.end(directory, found)
            click.echo(f"{directory.name} is down")
        except NetworkError as error:
            failed.append(error)
    for remove in (strays.remove_leftovers, cgroups.remove_leftovers, engine.remove_leftovers):
        try:
            for name in remove():
                click.echo(f"{name} is gone")
        except MissingError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise NetworkError("; ".join(map(str, failed)))


@click.command("down")
@click.argument("name", required=False)
@click.option("--all", "everything", is_flag=True, help="Every network, and what crashed ones left behind.")
def command(name: str | None, everything: bool) -> None:
    """Take a network down, without a trace."""
    end(name, everything=everything)
