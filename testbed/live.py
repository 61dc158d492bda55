"""How a run shows itself: plain lines where nobody watches, a live view on a terminal, and the table at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from testbed.network.calibrate import Calibration
from testbed.network.probe import Choice
from testbed.plan import Cell, NetworkPlan
from testbed.results.comparison import Line
from testbed.worker.progress import Where

STYLES = {"faithful": "green", "suspect": "yellow", "invalid": "bold red", "failed": "bold red"}
MOST_WORKERS = 16
PIPED_WIDTH = 150


class PlainView:
    """A line for everything that matters."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(width=None if Console().is_terminal else PIPED_WIDTH)
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}", highlight=False)

    def network(self, network: NetworkPlan, choice: Choice, seconds: float) -> None:
        self.say(
            f"network up in {seconds:.1f} s: {len(network.workers)} workers, {len(network.links)} links, "
            f"box {choice.kind} ({choice.reason})"
        )

    def calibrated(self, label: str, found: Calibration) -> None:
        where = f" at {label}" if label else ""
        grade = found.verdict.grade
        self.say(f"{len(found.probes)} links measured{where}: [{STYLES[grade]}]{grade}[/]")
        for reason in found.verdict.reasons[:3]:
            self.say(f"  {reason}")

    def begins(self, cell: Cell, number: int, of: int) -> None:
        self.say(f"cell {number + 1} of {of}: {cell.label}")

    def progress(self, cell: Cell, workers: Sequence[Where], counters: dict[str, Any]) -> None:
        """Nothing: lines that come too often hide those that matter."""

    def ended(self, cell: Cell, result: dict[str, Any]) -> None:
        if result["error"]:
            self.say(f"  [bold red]failed[/]: {result['error']}")
            return
        final = result["final"]
        scores = [f"accuracy {final['test_accuracy']:.1%}"] if "test_accuracy" in final else []
        scores += [f"loss {final['test_loss']:.3f}"] if "test_loss" in final else []
        grade = result["verdict"]["grade"]
        words = ", ".join([f"{1e3 * result['step_s']:.1f} ms per step", *scores])
        self.say(f"  {words}, [{STYLES[grade]}]{grade}[/]")

    def close(self) -> None:
        """Nothing is held open."""


class LiveView(PlainView):
    """The lines, and below them the cell that runs now."""

    def __init__(self) -> None:
        super().__init__(Console())
        self._live = Live(console=self.console, refresh_per_second=5, transient=True)
        self._live.start()
        self._cells = (0, 0)
        self._cell_began = 0.0
        self._last: tuple[float, dict[str, Any]] | None = None

    def begins(self, cell: Cell, number: int, of: int) -> None:
        self._cells, self._cell_began, self._last = (number, of), time.monotonic(), None
        self._done_seconds = time.monotonic() - self._began

    def progress(self, cell: Cell, workers: Sequence[Where], counters: dict[str, Any]) -> None:
        number, of = self._cells
        left = ""
        if number:
            seconds = self._done_seconds / number * (of - number) - (time.monotonic() - self._cell_began)
            left = f", about {max(0.0, seconds):.0f} s left"
        head = Text(f"cell {number + 1} of {of}{left}: {cell.label}", style="bold")
        self._live.update(Group(head, _workers_table(workers), self._links(counters)))

    def _links(self, counters: dict[str, Any]) -> Text:
        """What the links carry at the moment, the busiest first."""
        now = float(counters["time"])
        text = Text("")
        if self._last and now > self._last[0]:
            span, before = now - self._last[0], self._last[1]
            rates = {name: 8 * (new[0] - before[name][0]) / span / 1e6 for name, new in counters["links"].items()}
            busiest = sorted(rates.items(), key=lambda item: -item[1])[:6]
            text = Text("links: " + "  ".join(f"{name} {rate:.1f} Mbit/s" for name, rate in busiest), style="dim")
        self._last = (now, counters["links"])
        return text

    def ended(self, cell: Cell, result: dict[str, Any]) -> None:
        self.say(f"cell {self._cells[0] + 1} of {self._cells[1]}: {cell.label}")
        super().ended(cell, result)

    def close(self) -> None:
        self._live.stop()


def _workers_table(workers: Sequence[Where]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("worker", "step", "loss", "ms per step", "MB sent"):
        table.add_column(name, justify="right")
    for rank, where in enumerate(workers[:MOST_WORKERS]):
        pace = f"{1e3 * where.seconds / where.step:.1f}" if where.step > 0 else "–"
        loss = f"{where.loss:.3f}" if where.step > 0 else "–"
        table.add_row(f"w{rank}", str(max(where.step, 0)), loss, pace, f"{where.bytes_sent / 1e6:.2f}")
    return table


def show_comparison(lines: Sequence[Line], console: Console | None = None) -> None:
    """The table that a run ends with."""
    console = console or Console(width=None if Console().is_terminal else PIPED_WIDTH)
    several = len({line.point for line in lines}) > 1
    target = next((line.target for line in lines if line.target), None)
    table = Table(title="which method is fastest here", title_justify="left")
    columns = (["network"] if several else []) + ["method"]
    for name in columns:
        table.add_column(name)
    names = ["ms per step", "= compute", "+ codec", "+ wait", "+ other", "floor"]
    names += [f"s to {target}"] if target else []
    names += ["accuracy", "kB per step", "× all-reduce", "verdict"]
    for name in names:
        table.add_column(name, justify="right")
    for line in lines:
        cells = ([line.point] if several else []) + [line.method]
        table.add_row(*cells, *_numbers(line, bool(target)))
    console.print(table)
    console.print(
        "[dim]kB per step: sent by one worker. floor: what the messages alone need on these links. "
        "× all-reduce: how many times sooner at the target (or, without one, per step).[/]",
        highlight=False,
    )
    for line in lines:
        for reason in line.reasons[:2]:
            console.print(f"[yellow]{line.method}: {reason}[/]", highlight=False)


def _numbers(line: Line, with_target: bool) -> list[str]:
    parts = line.parts_s
    other = parts.get("mix", 0.0) + parts.get("other", 0.0)
    spread = f" ±{1e3 * line.step_spread:.1f}" if line.runs > 1 else ""
    numbers = ["–" if line.step_s is None else f"{1e3 * line.step_s:.1f}{spread}"]
    numbers += [_ms(parts.get(part)) for part in ("compute", "codec", "wait")]
    numbers += [_ms(other if parts else None), _ms(line.floor_s)]
    if with_target:
        numbers.append(f"{line.target_s:.1f}" if line.target_s is not None else "not reached")
    numbers.append("–" if line.accuracy is None else f"{line.accuracy:.1%}")
    numbers.append("–" if line.bytes_per_step is None else f"{line.bytes_per_step / 1e3:.1f}")
    numbers.append("–" if line.speedup is None else f"{line.speedup:.2f}")
    numbers.append(f"[{STYLES[line.verdict]}]{line.verdict}[/]" + (f" ({line.failed} failed)" if line.failed else ""))
    return numbers


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.1f}"
