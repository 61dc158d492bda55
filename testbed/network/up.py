"""The commands that bring a network up alone, show what is up, and take it down."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.errors import MissingError, NetworkError, TestbedError
from testbed.network import state

if TYPE_CHECKING:
    from testbed.network.events import Change
    from testbed.network.handle import Handle
    from testbed.plan import NetworkPlan
    from testbed.scenario.model import Scenario

INVALID = 6  # exit code: the network is up, but it is not what was asked for


def net_up(
    file: Path,
    sets: Sequence[str],
    box: str | None,
    name: str | None,
    *,
    calibrating: bool,
    profile: str | None = None,
) -> int:
    """Build, measure, leave up. Whatever goes wrong before the end takes everything down again."""
    from testbed.network.handle import start, uninterrupted
    from testbed.plan import plan
    from testbed.scenario.load import load

    began = time.monotonic()
    scenario = load(file, sets, profile)
    made = plan(scenario)
    for warning in made.warnings:
        click.echo(f"note: {warning}", err=True)
    if scenario.sweep:
        click.echo(f"note: this is the first network of the sweep over {', '.join(scenario.sweep)}", err=True)
    network = made.network if name is None else replace(made.network, name=name)
    changes = _timed_changes(scenario, network)
    handle, choice = start(network, box or scenario.box)  # interrupted before the next line, its keeper cleans up
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
        _start(handle, changes)
        handle.detach()
    except BaseException:
        with uninterrupted():
            handle.close()
        raise
    click.echo(
        f"testbed exec {network.workers[0].name} -- COMMAND, testbed shell, testbed status, testbed down {network.name}"
    )
    return INVALID if grade == "invalid" else 0


def _timed_changes(scenario: Scenario, network: NetworkPlan) -> list[Change]:
    """What events and traces change at their times; says what will not happen."""
    from testbed.network.schedule import VERBS, of_scenario
    from testbed.scenario.events import Step
    from testbed.scenario.units import Duration

    events = scenario.network.events
    left_out = {event.random.kind if event.random else event.verb for event in events} - {*VERBS, "flap"}
    left_out |= {str(event.at) for event in events if isinstance(event.at, Step)}
    if left_out:
        click.echo(f"note: events happen only while training: {', '.join(sorted(left_out))}", err=True)
    planned = of_scenario(scenario, network)
    if planned.cut is not None:
        click.echo(f"note: what repeats or follows a trace ends after {Duration(round(planned.cut))}", err=True)
    return planned.changes


def _start(handle: Handle, changes: list[Change]) -> None:
    if changes:
        handle.call("start_events", changes=changes)
        many = "1 timed change" if len(changes) == 1 else f"{len(changes)} timed changes"
        click.echo(f"{many} scheduled, counted from now; the last after {changes[-1][0]:g} s")


def status() -> None:
    """What is up, and what is left of what is not."""
    from testbed.network.view import show_networks
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


def down(name: str | None, *, everything: bool) -> None:
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
    """One that cannot be ended must not keep the others up."""
    from testbed.runtime import engine, groups, strays

    failed: list[TestbedError] = []
    for directory, found in state.everything():
        try:
            state.end(directory, found)
            click.echo(f"{directory.name} is down")
        except NetworkError as error:
            failed.append(error)
    for remove in (strays.remove_leftovers, groups.remove_leftovers, engine.remove_leftovers):
        try:
            for name in remove():
                click.echo(f"{name} is gone")
        except MissingError as error:
            failed.append(error)
    if len(failed) == 1:
        raise failed[0]
    if failed:
        raise NetworkError("; ".join(map(str, failed)))
