"""Resumes a run: reads its scenario, checks that the given one agrees, lists the missing cells. `testbed up --resume`
calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from testbed.errors import ScenarioError
from testbed.plan.model import Cell, Plan
from testbed.results.cell import PlannedCell
from testbed.results.directory import RunDirectory
from testbed.results.own_scenario import own_scenario
from testbed.results.status import status
from testbed.scenario.load import as_data, dump
from testbed.scenario.model import Scenario

MISSING = object()


def remember(run: RunDirectory, scenario: Scenario, made: Plan) -> None:
    """Record what the run is: its cells, its scenario with every default spelt out, and where the files are that it
    names."""
    run.write_json("cells.json", describe_cells(made))
    source = scenario.source
    origin = {"file": source.file, "directory": str(scenario.resolve(".").resolve()), "written": source.written()}
    run.write_json("origin.json", origin)
    run.write_text("scenario.yaml", dump(scenario))


def chosen_before(run: RunDirectory) -> dict[int, float]:
    """Return the slow-motion factors chosen when the run began, by point: cells must stay comparable."""
    return {cell.point: cell.slow_motion for cell in run.cells() if cell.slow_motion is not None}


def incomplete(plan: Plan, run: RunDirectory) -> list[Cell]:
    """Return the cells that failed or have no readable result. One that diverged would diverge again."""

    def missing(cell: Cell) -> bool:
        found = run.result(PlannedCell(cell.id, cell.method))
        return found is None or status(found) == "failed"

    return [cell for cell in plan.cells if missing(cell)]


def describe_cells(plan: Plan) -> list[dict[str, Any]]:
    """Return the content of cells.json: every cell, with all that the task or the graph chose by default."""
    from testbed.tasks.spec import resolve  # imports torch

    tasks = [resolve(scenario.task.spec).spelt_out() for scenario in plan.variants]
    described = []
    for cell in plan.cells:
        point = plan.points[cell.point]
        graph = {"name": point.gossip.name, "spectral_gap": point.gossip.spectral_gap}
        described.append(
            {**asdict(cell), "point_label": point.label, "workers": len(point.network.workers)}
            | {"task": tasks[cell.variant], "gossip": graph, "slow_motion": point.network.slow_motion}
        )
    return described


def check_same(run: RunDirectory, scenario: Scenario) -> None:
    """Refuse to mix results of different scenarios."""
    found = difference(as_data(own_scenario(run)), as_data(scenario))
    if found is None:
        return
    key, then, now = found
    raise ScenarioError(
        f"{scenario.where(key)}: {key} is {_shown(now)}; the run in {run.path} has {_shown(then)}",
        hint=f"leave the file out to go on with the run's own: testbed up --resume {run.path}; or begin a new run",
    )


def difference(before: Any, after: Any, at: str = "") -> tuple[str, Any, Any] | None:
    """Return the first key whose values differ, and both values; keys in the order of `before`."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            pair = before.get(key, MISSING), after.get(key, MISSING)
            if found := difference(*pair, f"{at}.{key}" if at else str(key)):
                return found
        return None
    if isinstance(before, Sequence) and isinstance(after, Sequence) and not isinstance(before, str):
        for number in range(max(len(before), len(after))):
            then, now = (some[number] if number < len(some) else MISSING for some in (before, after))
            if found := difference(then, now, f"{at}.{number}"):
                return found
        return None
    return None if before == after and type(before) is type(after) else (at, before, after)


def _shown(value: Any) -> str:
    return "not there" if value is MISSING else repr(value) if isinstance(value, str) else str(value)
