"""What training came to, against something that was varied between methods: bits and γ share it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from testbed.results.comparison import BASELINE
from testbed.results.run import Run

from . import reading, style
from .labels import End, at_ends

LEAST_SPAN = 0.1  # of an axis of accuracies: noise does not look like an effect
METRICS = ("test_accuracy", "test_loss", "train_loss")
WORDS = dict(zip(METRICS, ("accuracy at the end", "loss at the end", "training loss at the end"), strict=True))


def draw(run: Run, rows: pd.DataFrame, x: str, words: str, *, falling: bool = False) -> Figure:
    """`rows` are cells with `x` and `line`: what is varied, and of what; those that diverged have no numbers and are
    told. The network does not touch the maths, so cells on all networks count, each seed once. `falling`: the smaller
    x, the worse."""
    metric = next((name for name in METRICS if name in rows and rows[name].notna().any()), None)
    if metric is None:
        raise reading.LackingError(f"{run.name}: no cell recorded a loss or an accuracy")
    rows = rows.drop_duplicates(["line", x, "seed"])
    looks = style.looks(list(zip(rows["line"], rows["family"], strict=True)))
    made = style.figure()
    axes = style.bare(made.subplots())
    ends, lost = [], []
    for line, some in rows.groupby("line", sort=False):
        table = some.groupby(x)[metric].agg(["mean", "min", "max"])
        for value, own in some.groupby(x)[metric]:
            if diverged := int((~np.isfinite(own.astype(float))).sum()):
                lost.append(f"{line} at {value:g}" + (f" ({diverged} of {len(own)})" if len(own) > 1 else ""))
        table = table[np.isfinite(table["mean"].astype(float))]
        if len(table):
            ends.append(_line(axes, table, str(line), looks[str(line)], -1 if not falling else 0))
    reference = run.results[run.results["method"] == BASELINE]
    if metric in reference and reference[metric].notna().any():
        axes.axhline(float(reference[metric].mean()), color=style.INK, lw=0.9, ls=(0, (1, 2)))
    _scales(axes, sorted(set(rows[x])), falling)
    if metric == "test_accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        low, high = axes.get_ylim()
        middle, half = (low + high) / 2, max(high - low, LEAST_SPAN) / 2
        axes.set_ylim(middle - half, middle + half)
    axes.set_xlabel(style.plain(words))
    axes.set_ylabel(WORDS[metric])
    at_ends(made, [(axes, ends)])
    seeds = int(rows.groupby(["line", x])["seed"].count().max())
    style.remark(
        made,
        f"points: mean of {seeds} seeds; bars: lowest to highest" if seeds > 1 else "one seed",
        "dotted: all-reduce" if metric in reference and reference[metric].notna().any() else "",
        f"diverged: {', '.join(lost)}" if lost else "",
    )
    return made


def _line(axes: Axes, table: pd.DataFrame, name: str, look: style.Look, end: int) -> End:
    x, mean = table.index.to_numpy(dtype=float), table["mean"].to_numpy(dtype=float)
    axes.plot(x, mean, color=look.colour, ls=look.dash, lw=1.5, marker=look.marker, ms=4.8)
    spread = [mean - table["min"], table["max"] - mean]
    axes.errorbar(x, mean, yerr=spread, fmt="none", ecolor=look.colour, elinewidth=0.9, capsize=2)
    return End(float(x[end]), float(mean[end]), name, look.colour)


def _scales(axes: Axes, points: Sequence[float], falling: bool) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(list(points)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xticklabels([f"{point:g}" for point in points])
    if falling:
        axes.invert_xaxis()
