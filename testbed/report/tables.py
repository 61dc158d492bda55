"""The page's tables as plain data: the comparison, verdicts and their reasons, what happened. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

from testbed.answer import words
from testbed.results import columns
from testbed.results.cell import CellResult
from testbed.results.comparison import Line

FIRST = ("target_s", "speedup")  # what is compared


@dataclass(frozen=True)
class Cell:
    """A cell of a table, and what it is sorted by."""

    text: str
    value: float | str | None = None  # None: below all others
    note: str = ""  # small, behind it
    kind: str = ""  # how it looks


@dataclass(frozen=True)
class Column:
    """A heading and what it means."""

    name: str
    meaning: str = ""
    number: bool = True


@dataclass(frozen=True)
class Bar:
    """A step's parts as shares of the longest step at the same setting."""

    parts: tuple[tuple[str, float, str], ...]  # name, per cent, in words
    floor: float | None

    @property
    def told(self) -> str:
        return ", ".join(text for _, _, text in self.parts)


@dataclass(frozen=True)
class Row:
    """A method at a setting."""

    cells: tuple[Cell, ...]
    bar: Bar | None
    doubtful: bool
    leads: bool  # the fastest at its setting, or indistinguishable from it


@dataclass(frozen=True)
class Table:
    """Columns and rows; the bar has a column of its own, behind the step's time."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bar_after: int


def comparison(lines: Sequence[Line], leaders: Set[tuple[str, str]] = frozenset()) -> Table:
    """Return the terminal's table, with spreads and what was left out. `leaders`: settings with leading methods."""
    target = next((line.target for line in lines if line.target), None)
    swept = len({line.setting for line in lines}) > 1
    numbers = [one for one in columns.for_people(lines) if not one.sums]
    numbers.sort(key=lambda one: one.key not in FIRST)
    front = [Column("setting", "the swept values", number=False)] if swept else []
    front.append(Column("method", number=False))
    headings = [
        Column(one.heading.format(target=words.target(target or "")), _meaning(one), one.key != "verdict")
        for one in numbers
    ]
    special: dict[str, Callable[[Line], Cell]] = {
        "target_s": _target,
        "runs": _runs,
        "verdict": _verdict,
        "exchange_s": _exchange,
    }
    special["step_s"] = partial(_step, compared=not target)
    longest = {line.setting: 0.0 for line in lines}
    for line in lines:
        longest[line.setting] = max(longest[line.setting], line.step_s or 0.0)
    order = {setting: number for number, setting in enumerate(longest)}
    rows = []
    for line in lines:
        cells = [Cell(words.setting(line.setting), float(order[line.setting]))] if swept else []
        cells.append(Cell(words.method(line.method), line.method, kind="method"))
        cells += [special[one.key](line) if one.key in special else _number(one, line) for one in numbers]
        doubtful, leads = line.verdict not in ("faithful", "diverged"), (line.setting, line.method) in leaders
        rows.append(Row(tuple(cells), _bar(line, longest[line.setting]), doubtful, leads))
    bar_after = len(front) + 1 + [one.key for one in numbers].index("step_s")
    return Table((*front, *headings), tuple(rows), bar_after)


def _meaning(column: columns.Column) -> str:
    return column.meaning + ("; mean over repeats, ± half their range" if column.key in ("step_s", "target_s") else "")


def _exchange(line: Line) -> Cell:
    shown = columns.BY_KEY["exchange_s"].text(line.exchange_s)
    spread = "" if line.exchange_spread_s is None else f" ±{1e3 * line.exchange_spread_s:.1f}"
    return Cell(shown + spread, line.exchange_s)


def _step(line: Line, compared: bool) -> Cell:
    if compared and not line.runs and line.diverged:
        return Cell(line.divergence, None, kind="missed")
    return _spread(line, "step_s", line.step_spread, compared=compared)


def _target(line: Line) -> Cell:
    if line.target_s is not None:
        return _spread(line, "target_s", line.target_spread, compared=True)
    if not line.runs:
        return Cell(line.divergence, None, kind="missed") if line.diverged else Cell("–")
    of = line.runs + line.diverged
    return Cell("not reached", None, f"{line.reached} of {of} did" if line.reached else "", "missed")


def _runs(line: Line) -> Cell:
    others = ((line.failed, "failed"), (line.diverged, "diverged"), (line.invalid, "invalid"))
    return Cell(str(line.runs), float(line.runs), ", ".join(f"{number} {what}" for number, what in others if number))


def _verdict(line: Line) -> Cell:
    """Return the emulation's verdict; a diverged training has no time that it could have spoilt."""
    return Cell("–") if line.verdict == "diverged" else Cell(line.verdict, line.verdict, kind=line.verdict)


def _spread(line: Line, key: str, spread: float, *, compared: bool) -> Cell:
    column = columns.BY_KEY[key]
    note = f"±{column.text(spread)}" if line.runs > 1 else ""
    return replace(_number(column, line), note=note, kind="compared" if compared else "")


def _number(column: columns.Column, line: Line) -> Cell:
    value = column.of(line)
    return Cell(column.text(value).replace("%", " %"), value)


def _bar(line: Line, longest: float) -> Bar | None:
    if not line.parts_s or not longest:
        return None
    parts = []
    for column in (one for one in columns.for_people([line]) if one.sums):
        name, value = column.heading.split()[-1], column.of(line)
        if value:
            parts.append((name, round(100 * value / longest, 2), f"{name} {words.milliseconds(value)}"))
    return Bar(tuple(parts), None if line.floor_s is None else min(100.0, round(100 * line.floor_s / longest, 2)))


@dataclass(frozen=True)
class Verdict:
    """A reason against some cells, reported once."""

    grade: str
    reason: str
    alike: int  # reasons that differ from it only in their numbers
    cells: tuple[str, ...]


def verdicts(results: Sequence[CellResult]) -> list[Verdict]:
    """Return reasons with the cells they concern, the gravest first; `page` reports cells that failed or diverged."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    cells: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        if result.error is None:
            for reason in result.verdict.reasons:
                key = result.verdict.grade, re.sub(r"\d+", "#", reason)
                reasons.setdefault(key, {})[reason] = None
                cells.setdefault(key, {})[cell_label(result)] = None
    found = [
        Verdict(grade, next(iter(some)), len(some) - 1, tuple(cells[grade, shape]))
        for (grade, shape), some in reasons.items()
    ]
    rank = {"invalid": 0, "suspect": 1}
    return sorted(found, key=lambda one: (rank.get(one.grade, 2), -len(one.cells)))


@dataclass(frozen=True)
class Happening:
    """An event, or the loss of a worker."""

    cell: str
    at: float | None
    text: str
    problem: str = ""


def happenings(results: Iterable[CellResult]) -> list[Happening]:
    """Return what events did and which workers were lost or rejoined, in order of time within each cell."""
    found = []
    for result in results:
        own = [Happening(cell_label(result), one.at, one.text) for one in result.came_and_went]
        told = [one.text for one in own]
        for event in result.events:
            text = f"{event.subject} {event.what}"
            if not any(longer.startswith(text) for longer in told):  # a rejoined worker is reported with more words
                own.append(Happening(cell_label(result), event.at, text, event.problem))
        found += sorted(own, key=lambda one: one.at or 0.0)
    return found


def warnings(results: Iterable[CellResult]) -> list[tuple[str, tuple[str, ...]]]:
    """Return warnings of methods and runtime, with their cells; workers that left or rejoined are listed as such."""
    said: dict[str, dict[str, None]] = {}
    for result in results:
        told = {one.text for one in result.came_and_went}
        for warning in (*result.warnings, *result.shortcomings):
            if warning not in told:
                said.setdefault(warning, {})[words.method(result.method)] = None
    return [(text, tuple(who)) for text, who in said.items()]


def cell_label(result: CellResult) -> str:
    """Return "all-reduce · 5 ms, 10 Mbit/s · repeat 1"."""
    parts = [words.method(result.method), words.setting(result.setting)]
    return " · ".join(
        [part for part in parts if part] + ([f"repeat {result.cell.repeat}"] if result.cell.repeat else [])
    )
