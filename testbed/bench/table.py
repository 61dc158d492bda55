"""What every bench prints: a table for people or, with --json, a list of rows with the reference beside each value."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from testbed.console import SafeConsole

PIPED_WIDTH = 150  # columns where nobody's terminal limits them


@dataclass(frozen=True)
class Row:
    """One measured figure beside what it is compared with, both from this run."""

    metric: str
    value: float
    unit: str
    reference: str = ""  # what the reference is: a floor, a peer, what the scenario asked for
    reference_value: float | None = None
    goal: str = ""  # as text, e.g. "≤ 3 s"
    met: bool | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.reference_value if self.reference_value else None

    def as_json(self) -> dict[str, object]:
        return {
            "metric": self.metric,
            "value": self.value,
            "unit": self.unit,
            "reference": self.reference,
            "reference_value": self.reference_value,
            "ratio": self.ratio,
            "goal": self.goal,
            "met": self.met,
        }


def show(title: str, rows: Sequence[Row], *, as_json: bool) -> None:
    """Print the rows; JSON goes to standard output alone so that it can be piped."""
    if as_json:
        print(json.dumps([row.as_json() for row in rows], indent=1))
        return
    table = Table(title=title, title_justify="left")
    for name in ("metric", "value", "reference", "", "ratio", "goal", "met"):
        table.add_column(name, justify="left" if name in ("metric", "reference", "goal") else "right")
    for row in rows:
        table.add_row(
            row.metric,
            f"{_short(row.value)} {row.unit}",
            row.reference,
            "" if row.reference_value is None else f"{_short(row.reference_value)} {row.unit}",
            "" if row.ratio is None else f"{row.ratio:.3f}",
            row.goal,
            "" if row.met is None else ("yes" if row.met else "[bold red]no[/]"),
        )
    SafeConsole(width=None if sys.stdout.isatty() else PIPED_WIDTH).print(table)


def _short(value: float) -> str:
    return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
