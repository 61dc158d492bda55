"""A run's directory → what its answer needs to know of it. `testbed up`, `testbed show` and the report ask it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from testbed.report import words
from testbed.report.answer import Answer, Setup, answer
from testbed.results.comparison import compare
from testbed.results.rundir import RunDirectory
from testbed.results.table import console_for_people
from testbed.scenario.read import read


def answer_of(run: RunDirectory) -> Answer:
    """What a run says, as far as it got."""
    results = list(run.results())
    return answer(compare(results), setup(run, done=len(results)))


def show_answer(run: RunDirectory, console: Console | None = None) -> None:
    """In the terminal: the sentence, and what speaks against believing it."""
    console = console or console_for_people()
    found = answer_of(run)
    console.print(f"\n[bold]{escape(found.sentence)}[/]", highlight=False)
    for caveat in found.caveats:
        console.print(f"[dim]• {escape(caveat)}[/]", highlight=False)
    console.print()


def setup(run: RunDirectory, done: int) -> Setup:
    """From the scenario as it was resolved when the run began."""
    scenario = scenario_data(run)
    cells = run.read_json("cells.json", [])
    training = scenario.get("training") or {}
    compute = scenario.get("compute")
    swept = scenario.get("sweep") or {}
    return Setup(
        place=words.place(scenario, next((cell.get("workers") for cell in cells), None)),
        steps=training.get("steps"),
        eval_every=training.get("eval_every") or 0,
        emulated=isinstance(compute, Mapping) and "emulated" in compute,
        points="networks" if all(key.startswith("network.") for key in swept) else "settings",
        planned=len(cells),
        done=done,
    )


def scenario_data(run: RunDirectory) -> dict[str, Any]:
    """scenario.yaml as plain data; the run need not be one that today's schema accepts."""
    found = read((run.path / "scenario.yaml").read_text(), str(run.path / "scenario.yaml")).data
    return found if isinstance(found, dict) else {}


def whole_scenario(run: RunDirectory) -> dict[str, Any]:
    """The same with all that is the task's own choice, unless a sweep varies it."""
    data, cells = scenario_data(run), run.read_json("cells.json", [])
    swept = any(str(key).split(".")[0] == "task" for key in data.get("sweep") or {})
    whole = cells[0].get("task") if cells and not swept else None
    return {**data, "task": whole} if whole else data
