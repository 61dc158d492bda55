"""`testbed net`: a network alone, without training."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from testbed.commands.options import BOX, NETWORK, PROFILE, SETS, SLOW_MOTION, with_slow_motion
from testbed.interrupts import interruptible

if TYPE_CHECKING:
    from testbed.network.client import Client
    from testbed.plan.changes import Change
    from testbed.plan.model import NetworkPlan
    from testbed.scenario.model import Scenario

INVALID = 6  # exit code: the network is up, but it is not what was asked for


def build(
    file: Path,
    sets: Sequence[str],
    box: str | None,
    name: str | None,
    *,
    calibrating: bool,
    profile: str | None = None,
) -> int:
    """Build, measure, leave up. An error before the end takes everything down again."""
    from testbed.network.client import start, uninterrupted
    from testbed.plan.make import plan
    from testbed.scenario.load import load

    began = time.monotonic()
    scenario = load(file, sets, profile)
    made = plan(scenario)
    for warning in made.warnings:
        click.echo(f"note: {warning}", err=True)
    if scenario.slow_motion == "auto":
        click.echo("note: slow motion is chosen for methods that train; without any, this network is in real time")
    if scenario.sweep:
        click.echo(f"note: this is the first network of the sweep over {', '.join(scenario.sweep)}", err=True)
    network = made.network if name is None else replace(made.network, name=name)
    changes = _timed_changes(scenario, network)
    handle, choice = start(network, box or scenario.box)  # interrupted before the next line, its daemon cleans up
    try:
        click.echo(
            f"{network.name}: {len(network.workers)} workers, {len(network.links)} links, "
            f"up after {time.monotonic() - began:.1f} s; box {choice.kind}: {choice.reason}"
        )
        if network.slow_motion != 1:
            words = "a second of the scenario lasts {:g} real ones; commands in workers see real time"
            click.echo(f"slow motion: {words.format(network.slow_motion)}")
        grade = "faithful"
        if calibrating:
            from testbed.network.calibrate import calibrate
            from testbed.report.links import show_calibration

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
    """Return what events and traces change at their times; report what will not happen."""
    from testbed.plan.schedule import of_scenario
    from testbed.scenario.events import Step
    from testbed.scenario.units import Duration
    from testbed.scenario.verbs import ON_NETWORK

    events = scenario.network.events
    left_out = {event.random.kind if event.random else event.verb for event in events} - {*ON_NETWORK}
    left_out |= {str(event.at) for event in events if isinstance(event.at, Step)}
    if left_out:
        click.echo(f"note: events happen only while training: {', '.join(sorted(left_out))}", err=True)
    planned = of_scenario(scenario, network)
    if planned.cut is not None:
        click.echo(f"note: what repeats or follows a trace ends after {Duration(round(planned.cut))}", err=True)
    return planned.changes


def _start(handle: Client, changes: list[Change]) -> None:
    if changes:
        handle.call("start_events", changes=changes)
        many = "1 timed change" if len(changes) == 1 else f"{len(changes)} timed changes"
        click.echo(f"{many} scheduled, counted from now; the last after {changes[-1][0]:g} s")


@click.group("net")
def command() -> None:
    """A network alone: build it, change it, look at it."""


@command.command("up")
@click.argument("file", type=click.Path(path_type=Path))
@PROFILE
@SETS
@SLOW_MOTION
@BOX
@click.option("--name", help="What to call it. Default: the scenario's name.")
@click.option("--no-calibrate", is_flag=True, help="Do not measure the links.")
def up(
    file: Path,
    profile: str | None,
    sets: tuple[str, ...],
    slow_motion: str | None,
    box: str | None,
    name: str | None,
    no_calibrate: bool,
) -> None:
    """Build a scenario's network with empty workers, measure it, and leave it up."""
    changes = with_slow_motion(sets, slow_motion)
    with interruptible():
        sys.exit(build(file, changes, box, name, calibrating=not no_calibrate, profile=profile))


@command.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("link")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@NETWORK
def set_(link: str, settings: tuple[str, ...], name: str | None) -> None:
    """Change a link while it runs, without losing a packet.

    LINK is w0-w1 for both directions or 'w0>w1' (in quotes) for one. Settings as in scenarios:
    rate=5mbit latency=20ms jitter=1ms (or jitter=1ms:pareto) loss=1% buffer=50ms reorder=1%
    duplicate=1% corrupt=1%, and up or down.
    """
    from testbed.network import setting, state
    from testbed.network.client import Client

    setting.apply_and_show(Client(state.pick(name)), link, settings)
