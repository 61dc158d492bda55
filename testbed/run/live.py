"""How a run reports progress: plain lines without a terminal, a live view on one."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from testbed.console import SafeConsole, console_for_people
from testbed.network.calibrate import Calibration
from testbed.network.probe import Choice
from testbed.plan.model import Cell, NetworkPlan
from testbed.results.cell import CellResult
from testbed.results.status import status
from testbed.results.table import STYLES
from testbed.worker.progress import Where

MOST_WORKERS = 16  # more than this are summed up
LINES_BESIDE = 6  # of a terminal's height: heading, links, and some of the story so far


class PlainView:
    """Prints a line for everything that matters."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or console_for_people()
        self._began = time.monotonic()
        self._told: set[str] = set()

    def say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._began:6.1f} s[/]  {text}", highlight=False)

    def network(self, network: NetworkPlan, choice: Choice, seconds: float) -> None:
        self.say(
            f"network up in {seconds:.1f} s: {len(network.workers)} workers, {len(network.links)} links, "
            f"box {choice.kind} ({escape(choice.reason)})"
        )
        if network.slow_motion != 1:
            self.say(f"slow motion: a second of the scenario lasts {network.slow_motion:g} real ones")

    def calibrated(self, label: str, found: Calibration) -> None:
        where = f" at {escape(label)}" if label else ""
        grade = found.verdict.grade
        links = len({link for probe in found.probes for link in probe.links})
        paths = f" on {len(found.probes)} paths" if links != len(found.probes) else ""
        self.say(f"{links} links measured{paths}{where}: [{STYLES[grade]}]{grade}[/]")
        for reason in found.verdict.reasons[:3]:
            self.say(f"  {escape(reason)}")

    def begins(self, cell: Cell, number: int, of: int) -> None:
        self.say(f"cell {number + 1} of {of}: {escape(cell.label)}")

    def repeats(self, cell: Cell, result: CellResult, factor: float) -> None:
        """Report that the machine was too slow."""
        why = result.verdict.reasons[-1] if result.verdict.reasons else "this machine was too slow"
        words = f"at {result.slow_motion:g}× {result.verdict.grade}: {escape(why)}"
        self.say(f"  {words}; repeated in slower motion, {factor:g}×")

    def progress(self, cell: Cell, workers: Sequence[Where], counters: dict[str, Any]) -> None:
        """Print nothing: too many lines hide those that matter."""

    def ended(self, cell: Cell, result: CellResult) -> None:
        for text in result.shortcomings:
            if text not in self._told:
                self._told.add(text)
                self.say(f"  [yellow]{escape(text)}[/]")
        if result.error:
            ending = status(result)
            self.say(f"  [{STYLES[ending]}]{ending}[/]: {escape(result.error)}")
            if result.hint:
                self.say(f"  → {escape(result.hint)}")
            return
        final = result.final
        scores = [f"accuracy {final['test_accuracy']:.1%}"] if "test_accuracy" in final else []
        scores += [f"loss {final['test_loss']:.3f}"] if "test_loss" in final else []
        grade = result.verdict.grade
        slow = [f"slow motion {result.slow_motion:g}×"] if result.slow_motion != 1 else []
        words = ", ".join([f"{1e3 * (result.step_s or 0.0):.1f} ms per step", *scores, *slow])
        self.say(f"  {words}, [{STYLES[grade]}]{grade}[/]")
        for one in result.came_and_went:
            self.say(f"  [yellow]{escape(one.text)}[/]")

    def close(self) -> None:
        """Do nothing: nothing is held open."""


class LiveView(PlainView):
    """Prints the same lines, and below them the running cell."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__(console or SafeConsole())
        # Drawn when there is something new, not by a thread of its own: this process forks.
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._live.start()
        self._cells = (0, 0)
        self._cell_began = 0.0
        self._done_seconds = 0.0
        self._names: list[str] = []
        self._slow_motion = 1.0
        self._last: tuple[float, dict[str, Any]] | None = None

    @staticmethod
    def possible(out: TextIO | None) -> bool:
        return out is not None and out.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def network(self, network: NetworkPlan, choice: Choice, seconds: float) -> None:
        self._names = [worker.name for worker in network.workers]
        self._slow_motion = network.slow_motion
        super().network(network, choice, seconds)
        self._live.update(Text("measuring the links …", style="dim"), refresh=True)

    def calibrated(self, label: str, found: Calibration) -> None:
        self._live.update(Text(""), refresh=True)
        super().calibrated(label, found)

    def begins(self, cell: Cell, number: int, of: int) -> None:
        self._cells, self._cell_began, self._last = (number, of), time.monotonic(), None
        self._done_seconds = time.monotonic() - self._began

    def progress(self, cell: Cell, workers: Sequence[Where], counters: dict[str, Any]) -> None:
        number, of = self._cells
        left = ""
        if number:
            seconds = self._done_seconds / number * (of - number) - (time.monotonic() - self._cell_began)
            left = f", about {max(0.0, seconds):.0f} s left"
        head = Text(
            f"cell {number + 1} of {of}{left}{self._times(workers)}: {cell.label}",
            style="bold",
            no_wrap=True,
            overflow="ellipsis",
        )
        room = min(MOST_WORKERS, self.console.height - LINES_BESIDE)
        self._live.update(Group(head, workers_table(workers, self._names, room), self._links(counters)), refresh=True)

    def _times(self, workers: Sequence[Where]) -> str:
        """Return how long a cell in slow motion has trained, in scenario time and in real time."""
        if self._slow_motion == 1:
            return ""
        shown = max((where.seconds for where in workers), default=0.0)
        return f", {shown:.1f} s of the scenario in {shown * self._slow_motion:.0f} s"

    def _links(self, counters: dict[str, Any]) -> Text:
        """Show what the links carry at the moment, the busiest first."""
        now = float(counters["time"])
        text = Text("", no_wrap=True, overflow="ellipsis")
        if self._last and now > self._last[0]:
            span, before = now - self._last[0], self._last[1]
            rates = {name: 8 * (new[0] - before[name][0]) / span / 1e6 for name, new in counters["links"].items()}
            busiest = sorted(rates.items(), key=lambda item: -item[1])[:6]
            text.append("links: " + "  ".join(f"{name} {rate:.1f} Mbit/s" for name, rate in busiest), style="dim")
        self._last = (now, counters["links"])
        return text

    def ended(self, cell: Cell, result: CellResult) -> None:
        self._live.update(Text(""), refresh=True)
        self.say(f"cell {self._cells[0] + 1} of {self._cells[1]}: {escape(cell.label)}")
        super().ended(cell, result)

    def close(self) -> None:
        self._live.stop()


def workers_table(workers: Sequence[Where], names: Sequence[str], room: int) -> Table:
    """Return a table with a row per worker; if they do not fit, the slowest, the middle and the fastest."""
    table = Table(box=None, pad_edge=False)
    for name in ("worker", "step", "loss", "ms per step", "MB sent"):
        table.add_column(name, justify="right", no_wrap=True)
    if len(workers) <= room:
        for name, where in zip(names, workers, strict=False):
            table.add_row(name, *_numbers(where))
        return table
    order = sorted(range(len(workers)), key=lambda rank: workers[rank].step)
    table.add_row(f"slowest: {names[order[0]]}", *_numbers(workers[order[0]]))
    table.add_row(f"middle of {len(workers)}", *_numbers(_middle(workers)))
    table.add_row(f"fastest: {names[order[-1]]}", *_numbers(workers[order[-1]]))
    return table


def _middle(workers: Sequence[Where]) -> Where:
    medians = (statistics.median(getattr(where, key) for where in workers) for key in ("bytes_sent", "seconds", "loss"))
    step = statistics.median_low(where.step for where in workers)
    bytes_sent, seconds, loss = medians
    return Where(step, 0, int(bytes_sent), seconds, loss)


def _numbers(where: Where) -> list[str]:
    begun = where.step > 0
    return [
        str(max(where.step, 0)),
        f"{where.loss:.3f}" if begun else "–",
        f"{1e3 * where.seconds / where.step:.1f}" if begun else "–",
        f"{where.bytes_sent / 1e6:.2f}",
    ]
