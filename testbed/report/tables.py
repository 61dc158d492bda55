"""The page's tables as plain data: the comparison, verdicts and their reasons, what happened. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from testbed.report import words
from testbed.results.comparison import Line, method_label

PARTS = {"compute": ("compute",), "codec": ("codec",), "wait": ("wait",), "other": ("mix", "other")}


@dataclass(frozen=True)
class Cell:
    """What stands in a table, and what it is sorted by."""

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
    leads: bool  # the fastest at its setting, or not to be told from it


@dataclass(frozen=True)
class Table:
    """Columns and rows; the bar has a column of its own, behind the step's time."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bar_after: int


def comparison(lines: Sequence[Line], leaders: Set[tuple[str, str]] = frozenset()) -> Table:
    """As on the terminal, with spreads and what was left out. `leaders`: settings with the methods that lead there."""
    target = next((line.target for line in lines if line.target), None)
    swept = len({line.setting for line in lines}) > 1
    scored = any(line.accuracy is not None for line in lines)
    lossy = any(line.loss is not None for line in lines)
    columns = [Column("method", number=False)]
    if swept:
        columns.insert(0, Column("setting", "the swept values", number=False))
    if target:
        columns.append(Column(f"time to {words.target(target)}", "mean over repeats, ± half their range"))
    columns += [
        Column("× all-reduce", "how many times sooner at the target, or per step where none is set"),
        Column("step, ms", "mean over repeats, ± half their range"),
    ]
    bar_after = len(columns)
    timed = any(line.exchange_s is not None for line in lines)
    if timed:
        columns.append(Column("exchange, ms", "how long a step's messages took, hidden behind the gradient or not"))
    columns.append(Column("floor, ms", "the least that these messages need on these links"))
    columns.append(Column("kB per step", "sent by one worker"))
    columns += [Column("accuracy", "of the workers' own models at the end, mean")] if scored else []
    columns += [Column("loss", "on test data at the end, mean")] if lossy else []
    counted = any(line.runs != 1 or line.failed or line.invalid or line.diverged for line in lines)
    columns += [Column("runs", "that count")] if counted else []
    columns.append(Column("verdict", "whether the emulation was faithful", number=False))
    longest = {line.setting: 0.0 for line in lines}
    for line in lines:
        longest[line.setting] = max(longest[line.setting], line.step_s or 0.0)
    order = {setting: number for number, setting in enumerate(longest)}
    rows = []
    for line in lines:
        leads = (line.setting, line.method) in leaders
        cells = [Cell(words.method(line.method), line.method, kind="method")]
        if swept:
            cells.insert(0, Cell(words.setting(line.setting), float(order[line.setting])))
        if target:
            cells.append(_target(line))
        cells += [
            _number(line.speedup, "{:.2f}"),
            _step(line, compared=not target),
            *([_number(line.exchange_s, "{:.1f}", 1e3)] if timed else []),
            _number(line.floor_s, "{:.1f}", 1e3),
            _number(line.bytes_per_step, "{:.1f}", 1e-3),
        ]
        cells += [_number(line.accuracy, "{:.1f} %", 100)] if scored else []
        cells += [_number(line.loss, "{:.3f}")] if lossy else []
        cells += [_runs(line)] if counted else []
        cells.append(_verdict(line))
        doubtful = line.verdict not in ("faithful", "diverged")
        rows.append(Row(tuple(cells), _bar(line, longest[line.setting]), doubtful, leads))
    return Table(tuple(columns), tuple(rows), bar_after)


def _step(line: Line, compared: bool) -> Cell:
    if compared and not line.runs and line.diverged:
        return Cell(line.divergence, None, kind="missed")
    spread = _spread(1e3 * line.step_spread, line, "{:.1f}")
    return Cell(_form(line.step_s, "{:.1f}", 1e3), line.step_s, spread, "compared" if compared else "")


def _target(line: Line) -> Cell:
    if line.target_s is not None:
        return Cell(f"{line.target_s:.2f} s", line.target_s, _spread(line.target_spread, line, "{:.2f}"), "compared")
    if not line.runs:
        return Cell(line.divergence, None, kind="missed") if line.diverged else Cell("–")
    of = line.runs + line.diverged
    return Cell("not reached", None, f"{line.reached} of {of} did" if line.reached else "", "missed")


def _runs(line: Line) -> Cell:
    others = ((line.failed, "failed"), (line.diverged, "diverged"), (line.invalid, "invalid"))
    return Cell(str(line.runs), float(line.runs), ", ".join(f"{number} {what}" for number, what in others if number))


def _verdict(line: Line) -> Cell:
    """On the emulation; a training that diverged has no time that it could have spoilt."""
    return Cell("–") if line.verdict == "diverged" else Cell(line.verdict, line.verdict, kind=line.verdict)


def _spread(value: float, line: Line, form: str) -> str:
    return f"±{form.format(value)}" if line.runs > 1 else ""


def _number(value: float | None, form: str, factor: float = 1.0) -> Cell:
    return Cell(_form(value, form, factor), value)


def _form(value: float | None, form: str, factor: float = 1.0) -> str:
    return "–" if value is None else form.format(factor * value)


def _bar(line: Line, longest: float) -> Bar | None:
    if not line.parts_s or not longest:
        return None
    parts = []
    for name, some in PARTS.items():
        value = sum(line.parts_s.get(part, 0.0) for part in some)
        if value > 0:
            parts.append((name, round(100 * value / longest, 2), f"{name} {words.milliseconds(value)}"))
    return Bar(tuple(parts), None if line.floor_s is None else min(100.0, round(100 * line.floor_s / longest, 2)))


@dataclass(frozen=True)
class Verdict:
    """What was found against some cells, told once."""

    grade: str
    reason: str
    alike: int  # reasons that differ from it only in their numbers
    cells: tuple[str, ...]


def verdicts(results: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Reasons with the cells they concern, the gravest first; of cells that failed or diverged `page` tells."""
    reasons: dict[tuple[str, str], dict[str, None]] = {}
    cells: dict[tuple[str, str], dict[str, None]] = {}
    for result in results:
        if result["error"] is None:
            for reason in result["verdict"]["reasons"]:
                key = result["verdict"]["grade"], re.sub(r"\d+", "#", reason)
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


def happenings(results: Iterable[Mapping[str, Any]]) -> list[Happening]:
    """What the scenario's events did, which workers were lost or came back: in the order of time within each cell."""
    found = []
    for result in results:
        own = [Happening(cell_label(result), one["at"], one["text"]) for one in _came_and_went(result)]
        told = [one.text for one in own]
        for event in result.get("events", ()):
            text = f"{event['subject']} {event['what']}"
            if not any(longer.startswith(text) for longer in told):  # who rejoined is told with more words
                own.append(Happening(cell_label(result), event["at"], text, event.get("problem", "")))
        found += sorted(own, key=lambda one: one.at or 0.0)
    return found


def warnings(results: Iterable[Mapping[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """What methods and runtime warned of, with whom it concerns; workers that left or came back are told as such."""
    said: dict[str, dict[str, None]] = {}
    for result in results:
        told = {one["text"] for one in _came_and_went(result)}
        for warning in (*result.get("warnings", ()), *result.get("shortcomings", ())):
            if warning not in told:
                said.setdefault(warning, {})[words.method(method_label(result))] = None
    return [(text, tuple(who)) for text, who in said.items()]


def _came_and_went(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*result.get("lost", ()), *result.get("rejoined", ())]


def cell_label(result: Mapping[str, Any]) -> str:
    """ "all-reduce · 5 ms, 10 Mbit/s · repeat 1"."""
    parts = [words.method(method_label(result)), words.setting(result.get("setting", ""))]
    return " · ".join(
        [part for part in parts if part] + ([f"repeat {result['repeat']}"] if result.get("repeat") else [])
    )
