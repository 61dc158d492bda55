"""Which runs there are, and how far each got: `testbed runs`, and finding the run that a command names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from testbed.errors import ScenarioError
from testbed.results.rundir import RunDirectory
from testbed.results.status import outcome
from testbed.results.table import STYLES, console_for_people
from testbed.results.verdict import ORDER

RUNS = Path("runs")


@dataclass(frozen=True)
class Summary:
    """A run in one line."""

    name: str
    when: datetime | None  # it began
    total: int
    done: int
    failed: int
    verdicts: dict[str, int]  # of the cells that are done; those that diverged are done, too


def find(name: str, runs: Path = RUNS) -> RunDirectory:
    """The run that a person means: a directory, or a name below runs/."""
    places = [Path(name), runs / name]
    for place in places:
        if (place / "scenario.yaml").is_file():
            return RunDirectory.open(place)
    known = [path.name for path in _directories(runs)]
    close = get_close_matches(name, known, n=1)
    raise ScenarioError(
        f"there is no run {name}" + (f"; did you mean {close[0]}?" if close else ""),
        hint="testbed runs lists them" if known else "testbed up SCENARIO.yaml makes one",
    )


def summaries(directory: Path) -> list[Summary]:
    """Of all runs in a directory, the newest last."""
    found = [summary(RunDirectory.open(path)) for path in _directories(directory)]
    return sorted(found, key=lambda one: (one.when is not None, one.when, one.name))


def summary(run: RunDirectory) -> Summary:
    results = list(run.results())
    grades = Counter(outcome(result) for result in results)
    return Summary(
        name=run.path.name,
        when=began(run),
        total=len(run.read_json("cells.json", [])),
        done=len(results) - grades["failed"],
        failed=grades["failed"],
        verdicts={grade: grades[grade] for grade in (*ORDER, "diverged") if grades[grade]},
    )


def began(run: RunDirectory) -> datetime | None:
    """When its first network was up, or else when its directory was made."""
    environment = run.read_json("environment.json")
    while environment and environment.get("resumes"):
        environment = environment["resumes"]
    if environment:
        return datetime.fromisoformat(environment["time"])
    return datetime.fromtimestamp((run.path / "scenario.yaml").stat().st_mtime).astimezone()


def show(directory: Path) -> None:
    """The table of `testbed runs`."""
    console = console_for_people()
    found = summaries(directory)
    if not found:
        console.print(f"no runs in {escape(str(directory))}; testbed up SCENARIO.yaml makes one", highlight=False)
        return
    table = Table(box=None, pad_edge=False)
    for name, justify in (("run", "left"), ("began", "left"), ("done", "right"), ("failed", "right"), ("of", "right")):
        table.add_column(name, justify=justify, no_wrap=name != "run", overflow="fold")  # type: ignore[arg-type]
    table.add_column("verdicts")
    for one in found:
        verdicts = ", ".join(f"[{STYLES[grade]}]{count} {grade}[/]" for grade, count in one.verdicts.items())
        failed = f"[bold red]{one.failed}[/]" if one.failed else "0"
        when = f"{one.when:%Y-%m-%d %H:%M}" if one.when else ""
        table.add_row(escape(one.name), when, str(one.done), failed, str(one.total), verdicts)
    console.print(table)


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if (path / "scenario.yaml").is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ScenarioError(f"{parent} cannot be listed: {error.strerror}") from error
