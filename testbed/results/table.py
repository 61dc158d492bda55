"""The comparison table on a terminal: what a run ends with, and what `testbed show` shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from testbed.results.comparison import Line
from testbed.results.floors import above_floor

STYLES = {
    "faithful": "green",
    "suspect": "yellow",
    "invalid": "bold red",
    "failed": "bold red",
    "diverged": "magenta",
}
PIPED_WIDTH = 150  # columns where nobody's terminal limits them
MOST_REASONS = 8
MEANINGS = {
    "kB per step": "sent by one worker",
    "exchange": "how long a step's messages took, hidden behind the gradient or not (timed in one step of five)",
    "floor": "the least they need on these links",
    "accuracy": "mean of the workers' own models",
    "× all-reduce": "how many times sooner at the target (or, without one, per step)",
}
COMFORT = 18  # columns into which any text can be broken
STAYS = 9


def console_for_people() -> Console:
    """As wide as the terminal, or wide enough where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


@dataclass(frozen=True)
class Column:
    """A heading, what stands below it for each line, and how early it is left out where there is no room."""

    name: str
    cells: Sequence[str]
    patience: int = STAYS  # the lowest goes first
    text: bool = False  # may be broken into several lines

    @property
    def least(self) -> int:
        """Columns of the terminal below which it cannot be read."""
        return max(min(self._longest, COMFORT) if self.text else self._longest, *map(cell_len, self.name.split()))

    @property
    def most(self) -> int:
        """Beyond which more would be of no use."""
        return max(self._longest, cell_len(self.name))

    @property
    def _longest(self) -> int:
        return max(Text.from_markup(cell).cell_len for cell in self.cells)


def show_comparison(lines: Sequence[Line], console: Console | None = None) -> None:
    """All lines; columns as there is room for them."""
    console = console or console_for_people()
    if not lines:
        console.print("no cell is done yet")
        return
    columns, left_out = _columns(lines), []
    while _width(columns) > console.width and (least := min(column.patience for column in columns)) < STAYS:
        left_out += [column.name for column in columns if column.patience == least]
        columns = [column for column in columns if column.patience > least]
    if _width(columns) <= console.width:
        ends = [index for index, line in enumerate(lines[1:]) if line.setting != lines[index].setting]
        console.print(_table(title(lines), columns, ends, console.width))
    else:
        for row in zip(*(column.cells for column in columns), strict=True):
            console.print(
                " · ".join(f"{cell} {name}" if not text else cell for name, text, cell in _named(columns, row))
            )
    _explain(lines, console, [column.name for column in columns], left_out)


def title(lines: Sequence[Line]) -> str:
    """What the table compares: without a target it is steps, of which one method may need more than another."""
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
    columns.append(Column("ms per step", [_step(line, compared=not target) for line in lines]))
    for name, parts in (
        ("= compute", ("compute",)),
        ("+ codec", ("codec",)),
        ("+ wait", ("wait",)),
        ("+ other", ("mix", "other")),
    ):
        columns.append(Column(name, [_part(line, parts) for line in lines], patience=1))
    if any(line.exchange_s is not None for line in lines):
        columns.append(Column("exchange", [_ms(line.exchange_s) for line in lines], patience=2))
    columns.append(Column("floor", [_ms(line.floor_s) for line in lines], patience=2))
    if target:
        columns.append(Column(f"s to {target}", [_target(line) for line in lines]))
    columns += [
        Column("accuracy", [_or_dash(line.accuracy, "{:.1%}") for line in lines], patience=4),
        Column("kB per step", [_or_dash(line.bytes_per_step, "{:.1f}", 1e-3) for line in lines], patience=3),
        Column("× all-reduce", [_or_dash(line.speedup, "{:.2f}") for line in lines]),
        Column("verdict", [_verdict(line) for line in lines]),
    ]
    return columns


def _explain(lines: Sequence[Line], console: Console, shown: Sequence[str], left_out: Sequence[str]) -> None:
    words = [f"{name}: {meaning}." for name, meaning in MEANINGS.items() if name in shown]
    console.print(f"[dim]{' '.join(words)}[/]", highlight=False)
    if why := above_floor(lines):
        console.print(f"[dim]{why}[/]", highlight=False)
    if left_out:
        console.print(f"[dim]a wider terminal also shows: {', '.join(left_out)}[/]", highlight=False)
    doubts = _doubts(lines)
    for text in doubts[:MOST_REASONS]:
        console.print(f"[yellow]{escape(text)}[/]", highlight=False)
    if len(doubts) > MOST_REASONS:
        console.print(f"[yellow]… and {len(doubts) - MOST_REASONS} more: testbed show --json[/]", highlight=False)


def _doubts(lines: Sequence[Line]) -> list[str]:
    """Reasons with whom they concern; those that differ only in their numbers are told once."""
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
    spread = f" ±{1e3 * line.step_spread:.1f}" if line.runs > 1 else ""
    return _ms(line.step_s) + spread


def _part(line: Line, parts: Sequence[str]) -> str:
    return _ms(sum(line.parts_s.get(part, 0.0) for part in parts) if line.parts_s else None)


def _target(line: Line) -> str:
    if line.target_s is not None:
        return f"{line.target_s:.1f}" + (f" ±{line.target_spread:.1f}" if line.runs > 1 else "")
    return line.divergence or ("not reached" if line.runs else "–")


def _verdict(line: Line) -> str:
    """On the emulation; a training that diverged has no time that it could have spoilt."""
    if line.verdict == "diverged":
        return "–"
    failed = f"{line.failed} failed" if line.failed and line.verdict != "failed" else ""
    beside = ", ".join(filter(None, [failed, line.divergence]))
    return f"[{STYLES[line.verdict]}]{line.verdict}[/]" + (f" ({beside})" if beside else "")


def _ms(seconds: float | None) -> str:
    return _or_dash(seconds, "{:.1f}", 1e3)


def _or_dash(value: float | None, form: str, factor: float = 1.0) -> str:
    return "–" if value is None else form.format(factor * value)
