"""Lists runs and how far each got, for `testbed runs`, and finds the run that a command names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from testbed.console import console_for_people
from testbed.errors import ScenarioError, StorageError, TestbedError
from testbed.output import say
from testbed.results.directory import RunDirectory
from testbed.results.status import outcome
from testbed.results.table import STYLES
from testbed.verdict import ORDER

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
    """Return the run that a person means: a directory, or a name below runs/."""
    places = [Path(name), runs / name]
    for place in places:
        with suppress(OSError):
            if (place / "scenario.yaml").is_file():
                return RunDirectory.open(place)
    known = [path.name for path in _directories(runs)]
    close = get_close_matches(name, known, n=1)
    raise ScenarioError(
        f"there is no run {name}" + (f"; did you mean {close[0]}?" if close else ""),
        hint="testbed runs lists them" if known else "testbed up SCENARIO.yaml makes one",
    )


def summaries(directory: Path, say: Callable[[str], None] = lambda _: None) -> list[Summary]:
    """Summarise all runs in a directory, the newest last. `say` gets what is damaged."""
    found = []
    for path in _directories(directory):
        try:
            run = RunDirectory.open(path)
            found.append(summary(run))
        except TestbedError as error:
            say(str(error))
        else:
            for complaint in run.complaints():
                say(complaint)
    return sorted(found, key=lambda one: (one.when is not None, one.when, one.name))


def summary(run: RunDirectory) -> Summary:
    results = list(run.results())
    grades = Counter(outcome(result) for result in results)
    return Summary(
        name=run.path.name,
        when=began(run),
        total=len(run.cells()),
        done=len(results) - grades["failed"],
        failed=grades["failed"],
        verdicts={grade: grades[grade] for grade in (*ORDER, "diverged") if grades[grade]},
    )


def began(run: RunDirectory) -> datetime | None:
    """Return when its first network was up, or else when its directory was made."""
    if environment := run.environment():
        return environment.first.when
    return datetime.fromtimestamp((run.path / "scenario.yaml").stat().st_mtime).astimezone()


def show(directory: Path) -> None:
    """Print the table of `testbed runs`."""
    console = console_for_people()
    damaged: list[str] = []
    found = summaries(directory, damaged.append)
    tell(damaged)
    if not found and damaged:
        raise StorageError(f"no run in {directory} can be read")
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


def tell(complaints: Iterable[str]) -> None:
    """Report what is damaged and was left out, where it does not mix with a command's output."""
    for complaint in complaints:
        say(f"warning: {complaint}", err=True, fg="yellow")


def _directories(parent: Path) -> list[Path]:
    try:
        return sorted(path for path in parent.iterdir() if _holds_run(path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ScenarioError(f"{parent} cannot be listed: {error.strerror}") from error


def _holds_run(path: Path) -> bool:
    try:
        return (path / "scenario.yaml").is_file()
    except OSError:  # not ours to look into
        return False
