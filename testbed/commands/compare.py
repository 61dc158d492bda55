"""`testbed compare`: the same method and setting in several runs side by side, and what sets the runs apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from testbed.answer import words
from testbed.answer.inputs import answer_of, whole_scenario
from testbed.console import console_for_people
from testbed.errors import ScenarioError
from testbed.results.comparison import Line, compare
from testbed.results.directory import RunDirectory
from testbed.results.listing import tell
from testbed.results.table import STYLES

MOST_DIFFERENCES = 30
ABSENT = "–"
# What two runs of one scenario may differ in, of environment.json.
SURROUNDINGS = ("git", "cpu", "cores", "kernel", "box", "box_kernel", "runtime", "python")


@dataclass(frozen=True)
class Difference:
    """A key of the scenarios, or of the environments, and its value in each run."""

    key: str
    values: tuple[str, ...]


def show(runs: Sequence[RunDirectory], *, as_json: bool) -> None:
    """Print for people, or for programs."""
    if len(runs) < 2:
        raise ScenarioError("compare takes two runs or more", hint="testbed show RUN tells about one")
    names = distinct([run.path for run in runs])
    found = differences([whole_scenario(run) for run in runs])
    around = differences([_surroundings(run) for run in runs])
    lines = [compare(list(run.results())) for run in runs]
    tell(complaint for run in runs for complaint in run.complaints())
    if as_json:
        print(json.dumps(_as_data(names, found + around, lines), indent=1))
        return
    console = console_for_people()
    for name, run in zip(names, runs, strict=True):
        console.print(f"[bold]{escape(name)}[/]  {escape(answer_of(run).sentence)}", highlight=False)
    _show_differences(names, found, around)
    tables = side_by_side(lines)
    if not tables:
        console.print("no method was run at the same setting in two of them: there is nothing to compare")
        return
    metric = _metric(lines)
    table = Table(title=_title(lines) + (f", and {metric} at the end" if metric else ""), title_justify="left")
    several = len({setting for setting, _ in tables}) > 1
    for heading in (["setting"] if several else []) + ["method"]:
        table.add_column(heading, overflow="fold")
    for name in names:
        table.add_column(escape(name), justify="right")
    table.add_column("last / first", justify="right")
    for (setting, method), row in tables.items():
        before = [escape(words.setting(setting))] if several else []
        cells = [_cell(line, metric) for line in row]
        table.add_row(*before, escape(words.method(method)), *cells, _ratio(row))
    console.print(table)
    console.print(f"[dim]{_explanation(lines)}[/]", highlight=False)


def _show_differences(names: Sequence[str], found: Sequence[Difference], around: Sequence[Difference]) -> None:
    console = console_for_people()
    if not found:
        console.print("the runs have the same scenario")
    for title, some in (("what differs between the scenarios", found), ("and around them", around)):
        if not some:
            continue
        console.print(f"[italic]{title}[/]")
        table = Table(box=None, pad_edge=False, show_edge=False)
        table.add_column("")
        for name in names:
            table.add_column(escape(name), overflow="fold")
        for one in some[:MOST_DIFFERENCES]:
            table.add_row(f"[dim]{escape(one.key)}[/]", *map(escape, one.values))
        console.print(table)
        if len(some) > MOST_DIFFERENCES:
            console.print(f"… and {len(some) - MOST_DIFFERENCES} more: testbed compare --json")


def distinct(paths: Sequence[Any]) -> list[str]:
    """Return the shortest ends of paths that distinguish them."""
    parts = [path.parts for path in paths]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(some[-length:]) for some in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]


def differences(data: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return dotted keys whose values differ, in the order of the first run that has them."""
    flat = [dict(_flat(one)) for one in data]
    keys = dict.fromkeys(key for one in flat for key in one)
    rows = [Difference(key, tuple(one.get(key, ABSENT) for one in flat)) for key in keys]
    return [row for row in rows if len(set(row.values)) > 1]


def _flat(data: Any, at: str = "") -> list[tuple[str, str]]:
    """Flatten mappings; lists stay whole: a place in a list is not a name."""
    if isinstance(data, Mapping) and data:
        return [row for key, value in data.items() for row in _flat(value, f"{at}.{key}" if at else str(key))]
    return [(at, data if isinstance(data, str) else json.dumps(data, ensure_ascii=False))]


def _surroundings(run: RunDirectory) -> dict[str, Any]:
    found = run.environment()
    if found is None:
        return {"torch": None}
    return {key: getattr(found, key) for key in SURROUNDINGS} | {"torch": found.packages.get("torch")}


def side_by_side(runs: Sequence[Sequence[Line]]) -> dict[tuple[str, str], list[Line | None]]:
    """Return, by (setting, method), its line in each run; only what at least two runs have."""
    by_run = [{(line.setting, line.method): line for line in lines} for lines in runs]
    keys = dict.fromkeys(key for lines in by_run for key in lines)
    rows = {key: [lines.get(key) for lines in by_run] for key in keys}
    return {key: row for key, row in rows.items() if sum(line is not None for line in row) > 1}


def _time(line: Line) -> tuple[float | None, float]:
    """Return the time to compare by, and its spread."""
    return (line.target_s, line.target_spread) if line.target else (line.step_s, line.step_spread)


def _metric(lines: Sequence[Sequence[Line]]) -> str | None:
    """Return the metric of the models' quality: one for all, so that it compares."""
    every = [line for some in lines for line in some]
    if any(line.accuracy is not None for line in every):
        return "accuracy"
    return "loss" if any(line.loss is not None for line in every) else None


def _cell(line: Line | None, metric: str | None) -> str:
    if line is None:
        return ABSENT
    time, spread = _time(line)
    if not line.runs:
        return line.divergence or f"[{STYLES['failed']}]no result[/]"
    text = line.divergence or "not reached"
    if time is not None:
        text = f"{time:.2f} s" if line.target else f"{1e3 * time:.1f} ms"
    if time is not None and line.runs > 1:
        text += f" ±{spread:.2f}" if line.target else f" ±{1e3 * spread:.1f}"
    if metric == "accuracy" and line.accuracy is not None:
        text += f", {100 * line.accuracy:.1f} %"
    if metric == "loss" and line.loss is not None:
        text += f", {line.loss:.3g}"
    return text if line.verdict == "faithful" else f"{text} [{STYLES[line.verdict]}]{line.verdict}[/]"


def _ratio(row: Sequence[Line | None]) -> str:
    """Return the last time over the first; in brackets where the spreads overlap."""
    ends = row[0], row[-1]
    if ends[0] is None or ends[1] is None or ends[0].target != ends[1].target:
        return ABSENT
    (first, spread), (last, other) = _time(ends[0]), _time(ends[1])
    if not first or last is None:
        return ABSENT
    text = f"{last / first:.2f}"
    return f"({text})" if abs(last - first) <= spread + other else text


def _title(lines: Sequence[Sequence[Line]]) -> str:
    targets = {line.target for some in lines for line in some}
    if targets == {None}:
        return "time per step"
    return f"time to {words.target(targets.pop() or '')}" if len(targets) == 1 else "time to each run's target"


def _explanation(lines: Sequence[Sequence[Line]]) -> str:
    text = "±: half the range over repeats. last / first: below 1 is faster in the last run; in brackets where the "
    text += "spreads overlap."
    if any(line.runs == 1 for some in lines for line in some):
        text += " What ran once has no spread: small differences may be noise."
    return text


def _as_data(names: Sequence[str], found: Sequence[Difference], lines: Sequence[Sequence[Line]]) -> dict[str, Any]:
    return {
        "runs": list(names),
        "differences": {one.key: dict(zip(names, one.values, strict=True)) for one in found},
        "comparison": [
            {
                "setting": setting,
                "method": method,
                "runs": {name: None if line is None else asdict(line) for name, line in zip(names, row, strict=True)},
            }
            for (setting, method), row in side_by_side(lines).items()
        ],
    }


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(runs: tuple[str, ...], as_json: bool) -> None:
    """Compare runs: what differs between their scenarios, and each method's times side by side.

    RUN is a directory, or a name below runs/.
    """
    from testbed.results.listing import find

    show([find(run) for run in runs], as_json=as_json)
