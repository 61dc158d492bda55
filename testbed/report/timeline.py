"""What each worker did when, over a few steps: a cell's trace → bars that the page draws.

All methods are shown over the same length of time, so that a faster one shows more steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.results.parquet import read_table

WIDTH = 1000.0  # units of the drawing
ROW, BAR, STRIPE = 15.0, 9.0, 3.0  # a worker's row: what it does itself, and below it what travels meanwhile
MOST_WORKERS = 16
MOST_STEPS = 40  # of the fastest method
LEAST_STEPS = 3  # of the slowest, where that leaves the fastest readable
NARROW = 0.25  # units; what is narrower cannot be seen

# What a worker does itself, in the order of the legend, and beside it messages.
LEGEND = {
    "compute": "compute",
    "compress": "compress",
    "wait": "wait",
    "decompress": "decompress",
    "mix": "mix, update",
    "eval": "evaluation (clock stopped)",
    "send": "a message is on its way",
}
SAME = {"update": "mix", "data": "compute", "fault": "wait", "rejoin": "wait"}  # drawn alike


@dataclass(frozen=True)
class Timeline:
    """One cell."""

    method: str
    workers: tuple[str, ...]
    left_out: int  # workers that are not shown
    seconds: float
    steps: float  # that are in it
    ends: bool  # training was over before
    paths: dict[str, str]  # kind → SVG path of all its bars
    height: float
    ticks: tuple[tuple[float, str], ...]  # where, and what is written there

    @property
    def label(self) -> str:
        """Return a description for readers who cannot see it."""
        return (
            f"What {len(self.workers)} workers did under {self.method} in {self.seconds:.2g} s, {self.steps:.1f} steps"
        )


def window(step_times: Sequence[float]) -> float:
    """Return the seconds to show of every method: some steps of the slowest, but not too many of the fastest."""
    return min(LEAST_STEPS * max(step_times), MOST_STEPS * min(step_times))


def timeline(trace: Path, method: str, seconds: float, step_s: float) -> Timeline | None:
    """Return the middle of a cell's training; None where its trace is empty."""
    spans = _read(trace)
    if not len(spans["start_ns"]):
        return None
    start = _start(spans, round(seconds * 1e9))
    over = (int(spans["end_ns"].max()) - start) / 1e9
    inside = (spans["end_ns"] > start) & (spans["start_ns"] < start + seconds * 1e9)
    ranks = sorted(set(spans["worker"].tolist()))
    shown = ranks[:MOST_WORKERS]
    rows = {rank: number for number, rank in enumerate(shown)}
    scale = WIDTH / (seconds * 1e9)
    paths: dict[str, list[str]] = {kind: [] for kind in LEGEND}
    inside &= np.isin(spans["worker"], shown)
    for kind, rank, begin, end in zip(*(spans[key][inside].tolist() for key in _COLUMNS), strict=True):
        drawn = SAME.get(kind, kind)
        left = max(0.0, (begin - start) * scale)
        wide = min(WIDTH, (end - start) * scale) - left
        if drawn not in paths or wide < NARROW:
            continue
        top = rows[rank] * ROW + (BAR + 1 if drawn == "send" else 0)
        tall = STRIPE if drawn == "send" else BAR
        paths[drawn].append(f"M{left:.1f} {top:g}h{wide:.1f}v{tall:g}h-{wide:.1f}z")
    return Timeline(
        method=method,
        workers=tuple(f"w{rank}" for rank in shown),
        left_out=len(ranks) - len(shown),
        seconds=seconds,
        steps=min(seconds, over) / step_s,
        ends=over < seconds,
        paths={kind: "".join(bars) for kind, bars in paths.items() if bars},
        height=len(shown) * ROW,
        ticks=tuple(_ticks(seconds)),
    )


_COLUMNS = ("kind", "worker", "start_ns", "end_ns")


def _read(trace: Path) -> dict[str, NDArray[Any]]:
    """Read the columns needed, of the spans that are drawn."""
    from pyarrow import compute

    table = read_table(trace, columns=list(_COLUMNS))
    drawn = compute.not_equal(table["kind"].cast("string"), "receive")
    table = table.filter(drawn)
    kinds = np.asarray(table["kind"].cast("string").to_pylist() if len(table) else [], dtype=object)
    return {"kind": kinds, **{name: table[name].to_numpy() for name in _COLUMNS[1:]}}


def _start(spans: dict[str, NDArray[Any]], length: int) -> int:
    """Return where to begin: after an evaluation in the second half if one leaves room, else in the middle."""
    begin, end = int(spans["start_ns"].min()), int(spans["end_ns"].max())
    middle = begin + max(0, (end - begin - length)) // 2
    pauses = spans["end_ns"][spans["kind"] == "eval"]
    later = sorted(int(pause) for pause in pauses if middle <= int(pause) <= end - length)
    return later[0] if later else middle


def _ticks(seconds: float) -> Iterator[tuple[float, str]]:
    """Yield about five round times."""
    raw = seconds / 5
    size = 10.0 ** np.floor(np.log10(raw))
    every = next(float(size * m) for m in (1, 2, 5, 10) if size * m >= raw)
    number = 0
    while number * every <= seconds * 0.999:
        value = number * every
        yield value / seconds * WIDTH, f"{value:g} s" if every >= 1 else f"{1e3 * value:g} ms"
        number += 1
