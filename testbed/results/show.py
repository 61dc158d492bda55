"""`testbed show`: a run from its directory alone, finished or not."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from testbed.network.calibrate import Calibration, Probe, Way
from testbed.network.view import show_calibration
from testbed.report.setup import answer_of, show_answer
from testbed.results.comparison import compare
from testbed.results.listing import summary
from testbed.results.rundir import RunDirectory
from testbed.results.status import status
from testbed.results.table import console_for_people, show_comparison
from testbed.results.verdict import Verdict

MTU = 1500
MOST_POINTS = 3  # networks whose links are listed; --json has all


def show(run: RunDirectory, *, as_json: bool) -> None:
    """Everything about a run, for people or for programs."""
    results = list(run.results())
    links = newest(run.read_json("links.json", []))
    if as_json:
        print(json.dumps(as_data(run, results, links), indent=1, default=str))
        return
    console = console_for_people()
    _head(run, console)
    show_comparison(compare(results), console)
    show_answer(run, console)
    for point in links[:MOST_POINTS]:
        if point["label"]:
            console.print(f"\nthe network at {escape(point['label'])}", highlight=False)
        show_calibration(calibration(point), point.get("mtu", MTU), console)
    if len(links) > MOST_POINTS:
        console.print(f"… and {len(links) - MOST_POINTS} more networks: testbed show --json")
    _environment(run.read_json("environment.json"), console)
    _warnings(results, console)


def as_data(run: RunDirectory, results: list[dict[str, Any]], links: list[dict[str, Any]]) -> dict[str, Any]:
    done = {result["id"] for result in results}
    return {
        "run": run.path.name,
        "path": str(run.path),
        **{key: value for key, value in asdict(summary(run)).items() if key != "name"},
        "missing": [cell["id"] for cell in run.read_json("cells.json", []) if cell["id"] not in done],
        "answer": asdict(answer_of(run)),
        "comparison": [asdict(line) for line in compare(results)],
        "cells": [{"status": status(result), **result} for result in results],
        "links": links,
        "environment": run.read_json("environment.json"),
    }


def newest(links: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last measurement of each network: one that was resumed has several."""
    return list({point["point"]: point for point in links}.values())


def calibration(stored: dict[str, Any]) -> Calibration:
    """What links.json holds of one network."""
    probes = []
    for probe in stored["probes"]:
        ways = {way: Way(**probe[way]) for way in ("there", "back")}
        names = {"links": tuple(probe["links"]), "uses": frozenset(probe["uses"])}
        probes.append(Probe(**{**probe, **ways, **names}))
    verdict = Verdict(stored["verdict"]["grade"], tuple(stored["verdict"]["reasons"]))
    return Calibration(tuple(probes), verdict, stored["unmeasured"])


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


def _environment(found: dict[str, Any] | None, console: Console) -> None:
    if not found:
        console.print("the network was never up")
        return
    packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items() if version)
    for name, text in (
        ("when", found["time"]),
        ("box", f"{found['box']} ({found['box_reason']}), kernel {found['box_kernel']}"),
        ("runtime", found["runtime"]),
        ("machine", f"{found['cpu']}, {found['cores']} cores, {found['memory_bytes'] / 1e9:.0f} GB, {found['kernel']}"),
        ("python", f"{found['python']}, {packages}"),
        ("testbed", found["git"] or "not from a checkout"),
    ):
        console.print(f"[dim]{name:>8}[/]  {escape(str(text))}", highlight=False)


def _warnings(results: list[dict[str, Any]], console: Console) -> None:
    said: dict[str, list[str]] = {}
    for result in results:
        for warning in (*result.get("warnings", ()), *result.get("shortcomings", ())):
            said.setdefault(warning, []).append(result["method"])
    for warning, methods in said.items():
        who = ", ".join(dict.fromkeys(methods))
        console.print(f"[yellow]warning: {escape(who)}: {escape(warning)}[/]", highlight=False)
