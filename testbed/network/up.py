"""The commands that bring a network up alone, show what is up, and take it down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from testbed.errors import NetworkError
from testbed.network import state

INVALID = 6  # exit code: the network is up, but it is not what was asked for


def net_up(file: Path, sets: Sequence[str], box: str | None, name: str | None, *, calibrating: bool) -> int:
    """Build, measure, leave up. Whatever goes wrong before the end takes everything down again."""
    from testbed.network.handle import start
    from testbed.plan import plan
    from testbed.scenario.load import load

    began = time.monotonic()
    scenario = load(file, sets)
    made = plan(scenario)
    for warning in made.warnings:
        click.echo(f"note: {warning}", err=True)
    network = made.network if name is None else replace(made.network, name=name)
    handle, choice = start(network, box or scenario.box)
    try:
        click.echo(
            f"{network.name}: {len(network.workers)} workers, {len(network.links)} links, "
            f"up after {time.monotonic() - began:.1f} s; box {choice.kind}: {choice.reason}"
        )
        grade = "faithful"
        if calibrating:
            from testbed.network.calibrate import calibrate
            from testbed.network.view import show_calibration

            found = calibrate(handle, network)
            show_calibration(found, network.mtu)
            grade = found.verdict.grade
        handle.detach()
    except BaseException:
        handle.close()
        raise
    click.echo(
        f"testbed exec {network.workers[0].name} -- COMMAND, testbed shell, testbed status, testbed down {network.name}"
    )
    return INVALID if grade == "invalid" else 0


def status() -> None:
    """What is up, and what is left of what is not."""
    from testbed.network.view import show_networks

    leftovers = [path.name for path, found in state.everything() if not (found and found.alive())]
    show_networks(state.running(), leftovers)


def down(name: str | None, *, everything: bool) -> None:
    """End the named network, the only one, or all of them with whatever crashed ones left."""
    if everything:
        for directory, found in state.everything():
            state.end(directory, found)
            click.echo(f"{directory.name} is down")
        return
    if name is not None and (state.base() / name).is_dir():
        state.end(state.base() / name, state.find(name))
    elif name is None:
        picked = state.pick(None)
        state.end(picked.directory, picked)
        name = picked.name
    else:
        names = ", ".join(path.name for path, _ in state.everything()) or "none"
        raise NetworkError(f"there is no network named {name} (there are: {names})")
    click.echo(f"{name} is down")
