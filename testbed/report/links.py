"""Prints networks for people: what was asked and measured per link, what is up. Called by the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from testbed.errors import NetworkError
from testbed.link.counts import COUNTS
from testbed.link.netem import ideal_goodput
from testbed.network.calibrate import Calibration
from testbed.network.client import Client
from testbed.network.probes import Probe, Way
from testbed.network.state import State
from testbed.plan.model import NetworkPlan
from testbed.verdict import Verdict

STYLES = {"faithful": "green", "suspect": "yellow", "invalid": "bold red"}
MOST_ROWS = 40
MOST_REASONS = 8
LOOK_SECONDS = 5.0  # to wait for a daemon that may be stuck


def show_calibration(found: Calibration, mtu: int, console: Console | None = None) -> None:
    """Print the table "asked / measured" and the verdict."""
    table = Table(title="links, asked / measured (goodput: what headers leave of a rate)", title_justify="left")
    headings, rows = link_rows(found.probes[:MOST_ROWS], mtu)
    for number, name in enumerate(headings):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    console = console or Console()
    console.print(table)
    if len(found.probes) > MOST_ROWS:
        console.print(f"… and {len(found.probes) - MOST_ROWS} more (all of them count for the verdict)")
    if found.unmeasured:
        console.print(f"goodput was not measured on {found.unmeasured} of the link directions, to keep this short")
    show_verdict(found.verdict, console)


def link_rows(probes: Sequence[Probe], mtu: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and "asked / measured" for each measured pair. Packet loss etc. only where asked for."""
    ways = [way for probe in probes for way in (probe.there, probe.back)]
    counts = [name for name in COUNTS if any(way.asked(name) for way in ways)]
    headings = ["between", "round trip, ms", "goodput there, Mbit/s", "goodput back, Mbit/s"]
    headings += [f"{COUNTS[name].words} {direction}" for name in counts for direction in ("there", "back")]
    rows = [
        (
            _between(probe),
            _round_trip(probe),
            *_goodputs(probe, mtu),
            *(_share(way, name) for name in counts for way in (probe.there, probe.back)),
        )
        for probe in probes
    ]
    return tuple(headings), rows


def show_verdict(verdict: Verdict, console: Console | None = None) -> None:
    console = console or Console()
    console.print(f"the network is [{STYLES[verdict.grade]}]{verdict.grade}[/]", highlight=False)
    for reason in verdict.reasons[:MOST_REASONS]:
        console.print(f"  {reason}", highlight=False)
    if len(verdict.reasons) > MOST_REASONS:
        console.print(f"  … and {len(verdict.reasons) - MOST_REASONS} more", highlight=False)


def _between(probe: Probe) -> str:
    return probe.name if probe.hops == 1 else f"{probe.name} ({probe.hops} links)"


def _round_trip(probe: Probe) -> str:
    measured = "no answer" if probe.rtt is None else f"{probe.rtt * 1e3:.2f} ±{probe.spread * 1e3:.2f}"
    return f"{probe.latency * 1e3:.2f} / {measured}"


def _goodputs(probe: Probe, mtu: int) -> list[str]:
    return [_goodput(way, mtu) for way in (probe.there, probe.back)]


def _goodput(way: Way, mtu: int) -> str:
    if way.rate is None:
        return "unlimited"
    asked = f"{ideal_goodput(way.rate, mtu) / 1e6:.4g}"
    if way.too_busy:
        return f"{asked} / could not be measured"
    return f"{asked} / {'–' if way.goodput is None else format(way.goodput / 1e6, '.4g')}"


def _share(way: Way, count: str) -> str:
    if not way.asked(count):
        return ""
    found = way.shares[count].measured
    return f"{way.asked(count):.2%} / {'–' if found is None else format(found, '.2%')}"


def show_networks(networks: Sequence[State], leftovers: Sequence[str]) -> None:
    """Print the output of `testbed status`."""
    console = Console()
    if not networks:
        console.print("no network is up")
    for state in networks:
        handle = Client(state, patience=LOOK_SECONDS)
        try:
            plan, status, counters = handle.plan, handle.call("status"), handle.counters()
        except NetworkError as error:
            console.print(f"[yellow]{state.name}: {error}; testbed down {state.name} ends it[/]", highlight=False)
            continue
        console.print(
            f"[bold]{state.name}[/]  {len(plan.workers)} workers, {len(plan.links)} links, "
            f"{_box(state)}, daemon {state.daemon}, congestion control {_congestion(status)}"
            + (f", slow motion {plan.slow_motion:g}×" if plan.slow_motion != 1 else ""),
            highlight=False,
        )
        console.print(_links_table(plan, status, counters))
        for worker, others in status["partition"].items():
            console.print(f"partition: {worker} does not reach {', '.join(others)}", highlight=False)
        if status["changes_left"]:
            console.print(f"timed changes to come: {status['changes_left']}", highlight=False)
    for name in leftovers:
        console.print(
            f"[yellow]{name} is a leftover of a network that ended badly: testbed down {name}[/]", highlight=False
        )


def _box(state: State) -> str:
    where = "this kernel" if state.box == "host" else "the guest's kernel"
    return f"box {state.box} ({where}, {state.kernel})"


def _congestion(status: dict[str, Any]) -> str:
    return str(status["settings"]["net.ipv4.tcp_congestion_control"])


def _links_table(plan: NetworkPlan, status: dict[str, Any], counters: dict[str, Any]) -> Table:
    from testbed.link.shape import Shape
    from testbed.network.setting import describe

    table = Table()
    for name, justify in (
        ("direction", "left"),
        ("shape", "left"),
        ("sent", "right"),
        ("dropped", "right"),
        ("queued", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for link in plan.links[: MOST_ROWS // 2]:
        directions = f"{link.a}>{link.b}", f"{link.b}>{link.a}"
        for direction, shape in zip(directions, status["links"][link.name], strict=True):
            sent, _, drops, _, queued = counters["links"][direction]
            table.add_row(direction, describe(Shape(**shape)), f"{sent / 1e6:.2f} MB", str(drops), f"{queued} packets")
    return table
