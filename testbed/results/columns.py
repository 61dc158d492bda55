"""The measured numbers, one row each: what it is called, what it means, how people see it. Pure.

The terminal's table, the page's, CSV files with their columns.csv, and the tables for notebooks all read COLUMNS. A new
number needs the place that measures it, a field of CellResult, and a row here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from testbed.results.status import outcome

if TYPE_CHECKING:
    from testbed.results.cell import CellResult
    from testbed.results.comparison import Line

STAYS = 9
OfCell = Callable[["CellResult"], Any]


@dataclass(frozen=True)
class Column:
    """A number (or a word) of a cell and of a comparison's line."""

    key: str  # in CSV files and notebooks; of a line, the field if there is one
    meaning: str
    unit: str = ""  # of the stored value
    cell: OfCell | None = None  # its value in a cell's row; None: cells have none
    group: OfCell | None = None  # instead, where it is one of several that a cell may have: all of them by key
    compared: bool = False  # lines of a comparison have it; of numbers that are no field of Line, the mean over repeats
    # In tables for people
    heading: str = ""  # empty: it is in none of them
    place: int = 0  # from left to right
    factor: float = 1.0  # from the stored unit to the heading's
    form: str = "{:.1f}"
    room: int = STAYS  # on a terminal that is too narrow the lowest goes first; 0: on the page alone
    obvious: bool = False  # its heading says enough
    shown: Callable[[Sequence[Line]], bool] | None = None  # whether these lines need it; None: where any has a value
    sums: tuple[str, ...] = ()  # of a part of a step: the parts that people see as one

    @property
    def explained(self) -> str:
        """Return its meaning, with the unit that a file does not show."""
        return f"{self.unit}: {self.meaning}" if self.unit else self.meaning

    def of(self, line: Line) -> float | None:
        """Return its value in a line."""
        if self.sums:
            return sum(line.parts_s.get(part, 0.0) for part in self.sums) if line.parts_s else None
        found: float | None = line.measured[self.key] if self.key in line.measured else getattr(line, self.key)
        return found

    def text(self, value: float | None) -> str:
        return "–" if value is None else self.form.format(self.factor * value)


def measured(key: str, meaning: str, unit: str = "", *, compared: bool = True, **seen: Any) -> Column:
    """Return the column of a field of CellResult."""
    return Column(key, meaning, unit, attrgetter(key), compared=compared, **seen)


def _part(part: str, meaning: str, heading: str = "", place: int = 0, sums: tuple[str, ...] = ()) -> Column:
    seen: dict[str, Any] = {"factor": 1e3, "room": 1, "obvious": True, "shown": _always, "sums": sums or (part,)}
    seen |= {"heading": heading, "place": place}
    return Column(f"{part}_s", f"of step_s, {meaning}", "seconds", group=_parts, compared=True, **seen)


def _parts(result: CellResult) -> dict[str, float]:
    return {f"{part}_s": value for part, value in result.parts_s.items()}


def _final(key: str, meaning: str) -> Column:
    return Column(key, meaning, group=attrgetter("final"))


def _target(name: str) -> OfCell:
    return lambda result: getattr(result.target, name) if result.target else None


def _always(lines: Sequence[Line]) -> bool:
    return True


COLUMNS: tuple[Column, ...] = (
    measured("error", "why the cell failed or diverged; empty: it did not", compared=False),
    measured("steps", "steps that were trained", compared=False),
    measured("seconds", "all of training, on the training clock", "seconds", compared=False),
    measured("step_s", "time of a step on the training clock", "seconds", heading="ms per step", place=10, factor=1e3,
             shown=_always, obvious=True),
    measured("exchange_s", "how long a step's slowest messages took, hidden behind the gradient or not: median of the "
             "steps in which it was seen (one of five where methods overlap)", "seconds", heading="exchange, ms",
             place=30, factor=1e3, room=2),
    measured("exchange_spread_s", "half of what lies between the tenth and the ninetieth of a hundred such steps",
             "seconds"),
    measured("floor_s", "the least that these messages need on these links", "seconds", heading="floor, ms", place=40,
             factor=1e3, room=2, shown=_always),
    measured("least_s", "time of a step with the same gradients and codec, if messages took no longer than their floor",
             "seconds"),
    measured("bytes_per_step", "payload sent by one worker", "bytes", heading="kB per step", place=80, factor=1e-3,
             room=3, shown=_always),
    measured("wire_bytes", "bytes that left all workers' ports, headers included", compared=False),
    measured("overruns", "gradients that took longer than step_time", compared=False),
    measured("queued", "share of its time that the worker worst off was ready to run and had no processor"),
    measured("idle", "median share of the processors left idle", compared=False),
    measured("slow_motion", "real seconds that a second of the scenario lasted; all times but cell_s are in scenario "
             "time", compared=False),
    Column("paced", "share of connections, in either direction, whose messages were paced; empty: nobody looked",
           cell=lambda result: result.pacing.paced if result.pacing else None),
    Column("paced_rate", "bit/s of payload at which they were, median",
           cell=lambda result: 8 * result.pacing.median if result.pacing and result.pacing.median else None),
    _part("compute", "for gradients and data", "= compute", 21),
    _part("codec", "for compressing and decompressing", "+ codec", 22),
    _part("wait", "standing still for messages", "+ wait", 23),
    _part("mix", "for averaging and updating"),
    _part("other", "for everything else", "+ other", 24, ("mix", "other")),
    _final("train_loss", "last one, mean over workers"),
    _final("test_loss", "last one, mean over workers"),
    _final("test_accuracy", "last one, mean over workers"),
    _final("consensus", "last distance of the workers' models from their average"),
    _final("average_test_loss", "last one, of the averaged model"),
    _final("average_test_accuracy", "last one, of the averaged model"),
    Column("target", "what was to be reached: the metric, in a comparison with its value", cell=_target("metric"),
           compared=True),
    Column("target_value", "its value", cell=_target("value")),
    Column("target_step", "step at which it was reached", cell=_target("step")),
    Column("target_s", "time until the target was reached, if it was", "seconds",
           _target("seconds"), compared=True, heading="s to {target}", place=50, form="{:.2f}", obvious=True,
           shown=lambda lines: any(line.target for line in lines)),
    Column("memory_bytes", "of the largest worker, shared with no other", cell=attrgetter("memory_per_worker")),
    Column("diverged_step", "at which a model was first seen to be no number any more; empty: never",
           cell=lambda result: result.diverged.step if result.diverged else None, compared=True),
    Column("accuracy", "mean over the workers' own models at the end", compared=True, heading="accuracy", place=60,
           form="{:.1%}", room=4),
    Column("loss", "on test data at the end, mean over workers", compared=True, heading="loss", place=70,
           form="{:.3f}", room=0),
    Column("speedup", "how many times sooner than all-reduce at the target, or per step where none is set",
           compared=True, heading="× all-reduce", place=90, form="{:.2f}", shown=_always),
    Column("speedup_of", "at what: time to target, or time per step", compared=True),
    Column("runs", "repeats that count: neither failed nor diverged nor invalid", compared=True, heading="runs",
           place=100, room=0, shown=lambda lines: any(
               line.runs != 1 or line.failed or line.invalid or line.diverged for line in lines)),
    Column("failed", "repeats that failed", compared=True),
    Column("diverged", "repeats whose training diverged: no time to a target counts then", compared=True),
    Column("invalid", "repeats left out because their emulation was invalid", compared=True),
    Column("suspect", "repeats that count, but were marked suspect", compared=True),
    Column("reached", "repeats that reached the target", compared=True),
    Column("step_spread", "half the range of step_s over repeats", compared=True),
    Column("target_spread", "half the range of target_s over repeats", compared=True),
    Column("backend", "that carried the messages: gloo or nccl", compared=True),
    Column("congestion", "TCP's congestion control in force", compared=True),
    Column("verdict", "whether the emulation was faithful, suspect or invalid; or failed, diverged. Of repeats the "
           "worst", cell=outcome, compared=True, heading="verdict", place=110, shown=_always, obvious=True),
    Column("reasons", "against a better verdict, as JSON", cell=lambda result: result.verdict.reasons, compared=True),
    Column("options", "of the method, as JSON", cell=lambda result: result.cell.options),
    measured("decided", "what the method chose at run time, as JSON", compared=False),
    measured("cell_s", "real time that the cell took, starting and evaluation included", "seconds", compared=False),
)  # fmt: skip

BY_KEY = {column.key: column for column in COLUMNS}


def for_people(lines: Sequence[Line]) -> list[Column]:
    """Return the columns that say something about these lines, from left to right."""
    headed = sorted((column for column in COLUMNS if column.heading), key=lambda column: column.place)
    return [
        column
        for column in headed
        if (column.shown(lines) if column.shown else any(column.of(line) is not None for line in lines))
    ]


def means(results: Sequence[CellResult], known: Collection[str]) -> Iterator[tuple[str, float | None]]:
    """Yield the means of a comparison's numbers that are not among the known fields."""
    for column in COLUMNS:
        if column.compared and column.cell and column.key not in known:
            values = [value for value in map(column.cell, results) if value is not None]
            yield column.key, sum(values) / len(values) if values else None


def cell_row(result: CellResult) -> dict[str, Any]:
    """Return a cell's result as one row."""
    row: dict[str, Any] = {}
    for column in COLUMNS:
        row |= column.group(result) if column.group else {column.key: column.cell(result)} if column.cell else {}
    return row
