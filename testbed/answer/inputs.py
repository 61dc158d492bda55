"""A run's directory → what its answer needs. `testbed up`, `testbed show` and the report call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from testbed.answer import words
from testbed.answer.sentence import Answer, Setup, answer
from testbed.console import console_for_people
from testbed.results.comparison import compare
from testbed.results.directory import RunDirectory


def answer_of(run: RunDirectory) -> Answer:
    """Return the answer of a run, as far as it got."""
    results = list(run.results())
    return answer(compare(results), setup(run, done=len(results)))


def show_answer(run: RunDirectory, console: Console | None = None) -> None:
    """Print the sentence and its caveats on the terminal."""
    console = console or console_for_people()
    found = answer_of(run)
    console.print(f"\n[bold]{escape(found.sentence)}[/]", highlight=False)
    for caveat in found.caveats:
        console.print(f"[dim]• {escape(caveat)}[/]", highlight=False)
    if slowly := words.slow_motion(list(run.results())):
        console.print(f"[dim]• This {slowly}.[/]", highlight=False)
    console.print()


def setup(run: RunDirectory, done: int) -> Setup:
    """Return the setup from the scenario as it was resolved when the run began."""
    scenario = run.scenario_data()
    cells = run.cells()
    training = scenario.get("training") or {}
    compute = scenario.get("compute")
    swept = scenario.get("sweep") or {}
    return Setup(
        place=words.place(scenario, next((cell.workers for cell in cells), None)),
        steps=training.get("steps"),
        eval_every=training.get("eval_every") or 0,
        emulated=isinstance(compute, Mapping) and "emulated" in compute,
        points="networks" if all(key.startswith("network.") for key in swept) else "settings",
        planned=len(cells),
        done=done,
    )


def whole_scenario(run: RunDirectory) -> dict[str, Any]:
    """Return the same with all that the task chose by default, unless a sweep varies it."""
    data, cells = run.scenario_data(), run.cells()
    swept = any(str(key).split(".")[0] == "task" for key in data.get("sweep") or {})
    whole = cells[0].task if cells and not swept else None
    return {**data, "task": whole} if whole else data
