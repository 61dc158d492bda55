"""The comparison table on a terminal: shown at the end of a run and by `testbed show`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from testbed.console import console_for_people
from testbed.results.above_floor import above_floor
from testbed.results.columns import BY_KEY, STAYS, for_people
from testbed.results.comparison import Line

STYLES = {
    "faithful": "green",
    "suspect": "yellow",
    "invalid": "bold red",
    "failed": "bold red",
    "diverged": "magenta",
}
MOST_REASONS = 8
COMFORT = 18  # columns into which any text can be broken


@dataclass(frozen=True)
class Column:
    """A heading, its cell for each line, and how early the column is left out where there is no room."""

    name: str
    cells: Sequence[str]
    room: int = STAYS  # the lowest goes first
    text: bool = False  # may be broken into several lines
    meaning: str = ""

    @property
    def least(self) -> int:
        """Return the least width in terminal columns at which it can be read."""
        return max(min(self._longest, COMFORT) if self.text else self._longest, *map(cell_len, self.name.split()))

    @property
    def most(self) -> int:
        """Return the width beyond which more would be of no use."""
        return max(self._longest, cell_len(self.name))

    @property
    def _longest(self) -> int:
        return max(Text.from_markup(cell).cell_len for cell in self.cells)


def show_comparison(lines: Sequence[Line], console: Console | None = None) -> None:
    """Print all lines; columns as there is room for them."""
    console = console or console_for_people()
    if not lines:
        console.print("no cell is done yet")
        return
    columns, left_out = _columns(lines), []
    while _width(columns) > console.width and (least := min(column.room for column in columns)) < STAYS:
        left_out += [column.name for column in columns if column.room == least]
        columns = [column for column in columns if column.room > least]
    if _width(columns) <= console.width:
        ends = [index for index, line in enumerate(lines[1:]) if line.setting != lines[index].setting]
        console.print(_table(title(lines), columns, ends, console.width))
    else:
        for row in zip(*(column.cells for column in columns), strict=True):
            console.print(
                " · ".join(f"{cell} {name}" if not text else cell for name, text, cell in _named(columns, row))
            )
    _explain(lines, console, columns, left_out)


def title(lines: Sequence[Line]) -> str:
    """Return what the table compares: without a target it is steps, of which one method may need more than another."""
    if any(line.target for line in lines):
        return "which method is fastest here: by the time to the target"
    return "which method has the fastest steps here (no target is set: how many steps each needs is not compared)"


def _width(columns: Sequence[Column]) -> int:
    return sum(column.least + 3 for column in columns) + 1


def _table(heading: str, columns: Sequence[Column], ends: Sequence[int], width: int) -> Table:
    table = Table(title=heading, title_justify="left")
    spare = width - _width(columns)
    for column in columns:  # the first, which hold text, profit most
        more = min(spare, column.most - column.least)
        spare -= more
        justify: Literal["left", "right"] = "left" if column.text else "right"
        table.add_column(column.name, justify=justify, width=column.least + more, overflow="fold")
    for index, row in enumerate(zip(*(column.cells for column in columns), strict=True)):
        table.add_row(*row, end_section=index in ends)
    return table


def _named(columns: Sequence[Column], row: Sequence[str]) -> Iterator[tuple[str, bool, str]]:
    for column, cell in zip(columns, row, strict=True):
        if cell:
            yield ("" if column.name == "verdict" else column.name), column.text, cell


def _columns(lines: Sequence[Line]) -> list[Column]:
    target = next((line.target for line in lines if line.target), None)
    columns = [Column("method", [escape(line.method) for line in lines], text=True)]
    if len({line.setting for line in lines}) > 1:
        before = [None, *(line.setting for line in lines)]
        shown = ["" if line.setting == before[index] else escape(line.setting) for index, line in enumerate(lines)]
        columns.insert(0, Column("setting", shown, text=True))
    special: dict[str, Callable[[Line], str]] = {"target_s": _target, "verdict": _verdict, "exchange_s": _exchange}
    special["step_s"] = partial(_step, compared=not target)
    for one in (one for one in for_people(lines) if one.room):
        cells = [special[one.key](line) if one.key in special else one.text(one.of(line)) for line in lines]
        meaning = "" if one.obvious else one.meaning
        columns.append(Column(one.heading.format(target=target), cells, one.room, meaning=meaning))
    return columns


def _explain(lines: Sequence[Line], console: Console, shown: Sequence[Column], left_out: Sequence[str]) -> None:
    words = [f"{column.name}: {column.meaning}." for column in shown if column.meaning]
    console.print(f"[dim]{' '.join(words)}[/]", highlight=False)
    if why := above_floor(lines):
        console.print(f"[dim]{why}[/]", highlight=False)
    if left_out:
        console.print(f"[dim]a wider terminal also shows: {'; '.join(left_out)}[/]", highlight=False)
    doubts = _doubts(lines)
    for text in doubts[:MOST_REASONS]:
        console.print(f"[yellow]{escape(text)}[/]", highlight=False)
    if len(doubts) > MOST_REASONS:
        console.print(f"[yellow]… and {len(doubts) - MOST_REASONS} more: testbed show --json[/]", highlight=False)


def _doubts(lines: Sequence[Line]) -> list[str]:
    """Return reasons with the methods they concern; those that differ only in their numbers are reported once."""
    several = len({line.setting for line in lines}) > 1
    groups: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        who = f"{line.method} ({line.setting})" if several and line.setting else line.method
        for reason in line.reasons:
            groups.setdefault(re.sub(r"\d+", "#", reason), []).append((who, reason))
    told = []
    for group in groups.values():
        (first, reason), others = group[0], len({who for who, _ in group}) - 1
        if not others:
            told.append(f"{first}: {reason}")
        elif len({text for _, text in group}) == 1:
            told.append(f"{first} and {others} more: {reason}")
        else:
            told.append(f"{first}: {reason} (and {others} more like it, with other numbers)")
    return told


def _step(line: Line, *, compared: bool) -> str:
    if compared and not line.runs and line.diverged:
        return line.divergence
    return _spread(line, "step_s", line.step_spread)


def _exchange(line: Line) -> str:
    spread = "" if line.exchange_spread_s is None else f" ±{1e3 * line.exchange_spread_s:.1f}"
    return BY_KEY["exchange_s"].text(line.exchange_s) + spread


def _target(line: Line) -> str:
    if line.target_s is not None:
        return _spread(line, "target_s", line.target_spread)
    return line.divergence or ("not reached" if line.runs else "–")


def _spread(line: Line, key: str, spread: float) -> str:
    column = BY_KEY[key]
    return column.text(column.of(line)) + (f" ±{column.text(spread)}" if line.runs > 1 else "")


def _verdict(line: Line) -> str:
    """Return the emulation's verdict; a diverged training has no time that it could have spoilt."""
    if line.verdict == "diverged":
        return "–"
    failed = f"{line.failed} failed" if line.failed and line.verdict != "failed" else ""
    beside = ", ".join(filter(None, [failed, line.divergence]))
    return f"[{STYLES[line.verdict]}]{line.verdict}[/]" + (f" ({beside})" if beside else "")
