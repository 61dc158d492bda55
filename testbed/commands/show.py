"""`testbed show`: a run from its directory alone, finished or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from testbed.answer.inputs import answer_of, show_answer
from testbed.commands.options import JSON
from testbed.console import console_for_people
from testbed.report.links import show_calibration
from testbed.results.cell import CellResult
from testbed.results.comparison import compare
from testbed.results.directory import RunDirectory
from testbed.results.listing import find, summary, tell
from testbed.results.status import status
from testbed.results.surroundings import MeasuredNetwork, newest
from testbed.results.table import show_comparison

MOST_POINTS = 3  # networks whose links are listed; --json has all


def show(run: RunDirectory, *, as_json: bool) -> None:
    """Print everything about a run, for people or for programs."""
    results = list(run.results())
    networks = newest(run.networks())
    if as_json:
        print(json.dumps(as_data(run, results, networks), indent=1, default=_plain))
        tell(run.complaints())
        return
    console = console_for_people()
    _head(run, console)
    show_comparison(compare(results), console)
    show_answer(run, console)
    for network in networks[:MOST_POINTS]:
        if network.label:
            console.print(f"\nthe network at {escape(network.label)}", highlight=False)
        show_calibration(network.calibration, network.mtu, console)
    if len(networks) > MOST_POINTS:
        console.print(f"… and {len(networks) - MOST_POINTS} more networks: testbed show --json")
    _environment(run, console)
    _warnings(results, console)
    tell(run.complaints())


def as_data(run: RunDirectory, results: list[CellResult], networks: list[MeasuredNetwork]) -> dict[str, Any]:
    done = {result.id for result in results}
    return {
        "run": run.path.name,
        "path": str(run.path),
        **{key: value for key, value in asdict(summary(run)).items() if key != "name"},
        "missing": [cell.id for cell in run.cells() if cell.id not in done],
        "answer": asdict(answer_of(run)),
        "comparison": [asdict(line) for line in compare(results)],
        "cells": [{"status": status(result), **result.as_data()} for result in results],
        "links": [network.stored() for network in networks],
        "environment": run.read_json("environment.json") if run.environment() else None,
        "damaged": run.complaints(),
    }


def _plain(value: object) -> Any:
    return sorted(value) if isinstance(value, frozenset) else str(value)


def _head(run: RunDirectory, console: Console) -> None:
    one = summary(run)
    console.print(f"[bold]{escape(one.name)}[/]  {escape(str(run.path))}", highlight=False)
    words = [f"{one.done} of {one.total} cells are done"]
    if diverged := one.verdicts.get("diverged"):
        words[0] += f", of which {diverged} diverged"
    words += [f"{one.failed} failed"] if one.failed else []
    if one.done < one.total:
        words.append(f"testbed up --resume {run.path} runs the rest")
    console.print("; ".join(map(escape, words)), highlight=False, soft_wrap=True)


def _environment(run: RunDirectory, console: Console) -> None:
    found = run.environment()
    if not found:
        if str(run.path / "environment.json") not in run.damaged:
            console.print("the network was never up")
        return
    packages = ", ".join(f"{name} {version}" for name, version in found.packages.items() if version)
    for name, text in (
        ("when", found.time),
        ("box", f"{found.box} ({found.box_reason}), kernel {found.box_kernel}"),
        ("runtime", found.runtime),
        ("machine", f"{found.cpu}, {found.cores} cores, {found.memory_bytes / 1e9:.0f} GB, {found.kernel}"),
        ("python", f"{found.python}, {packages}"),
        ("testbed", found.git or "not from a checkout"),
    ):
        console.print(f"[dim]{name:>8}[/]  {escape(str(text))}", highlight=False)


def _warnings(results: list[CellResult], console: Console) -> None:
    said: dict[str, list[str]] = {}
    for result in results:
        for warning in (*result.warnings, *result.shortcomings):
            said.setdefault(warning, []).append(result.cell.method)
    for warning, methods in said.items():
        who = ", ".join(dict.fromkeys(methods))
        console.print(f"[yellow]warning: {escape(who)}: {escape(warning)}[/]", highlight=False)


@click.command("show")
@click.argument("run")
@JSON
def command(run: str, as_json: bool) -> None:
    """Show what a run found, finished or not: comparison, network, environment, warnings.

    RUN is its directory, or its name below runs/.
    """
    show(find(run), as_json=as_json)
