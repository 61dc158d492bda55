"""Going on with a run: its own scenario, whether the one at hand says the same, which cells are missing. `testbed up
--resume` calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError, StorageError
from testbed.plan import Cell, Plan
from testbed.results.rundir import RunDirectory
from testbed.results.status import status
from testbed.scenario.load import as_data, dump, load
from testbed.scenario.model import Scenario

MISSING = object()


def remember(run: RunDirectory, scenario: Scenario, made: Plan) -> None:
    """Write down what the run is: its cells, its scenario with every default spelt out, and where the files are that
    it names."""
    run.write_json("cells.json", describe_cells(made))
    source = scenario.source
    origin = {"file": source.file, "directory": str(scenario.resolve(".").resolve()), "written": source.written()}
    run.write_json("origin.json", origin)
    run.write_text("scenario.yaml", dump(scenario))


def incomplete(plan: Plan, run: RunDirectory) -> list[Cell]:
    """The cells that have no result that can be read, or failed. One that diverged would diverge again."""

    def result(cell: Cell) -> Mapping[str, Any]:
        with suppress(StorageError):  # it was damaged: what counts is that it is not there
            found = run.read_json(f"cells/{cell.id}/result.json")
            if isinstance(found, dict) and "error" in found:
                return found
        return {"error": "it has none"}

    return [cell for cell in plan.cells if status(result(cell)) == "failed"]


def describe_cells(plan: Plan) -> list[dict[str, Any]]:
    """What cells.json holds: which cell is what, with all that is the task's or the graph's own choice."""
    from testbed.tasks.spec import resolve  # imports torch

    tasks = [resolve(scenario.task.spec).spelt_out() for scenario in plan.variants]
    described = []
    for cell in plan.cells:
        point = plan.points[cell.point]
        graph = {"name": point.gossip.name, "spectral_gap": point.gossip.spectral_gap}
        described.append(
            {**asdict(cell), "point_label": point.label, "workers": len(point.network.workers)}
            | {"task": tasks[cell.variant], "gossip": graph}
        )
    return described


def own_scenario(run: RunDirectory) -> Scenario:
    """What the run was begun with."""
    directory = Path(run.read_json("origin.json", {}).get("directory", run.path))
    return load(run.path / "scenario.yaml", directory=directory)


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
    """The first key whose values differ, and these; keys in the order of `before`."""
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
