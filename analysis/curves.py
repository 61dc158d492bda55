"""A metric while training goes on, against steps, time or bytes: what the loss and accuracy figures share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from testbed.results.run import Run

from . import reading, style
from .labels import MOST, End, at_ends, legend

WORDS = {
    "test_loss": "loss on held-out data",
    "test_accuracy": "accuracy on held-out data",
    "train_loss": "loss on the training batches",
    "consensus": "distance of the workers' models from their average",
}
ALONG = {
    "step": "steps",
    "time_s": "training time, s",
    "megabytes": "MB sent by one worker",
}
FROM_THE_MEAN = "squared distance from the true mean"  # the loss of a run that only gossips
SQUEEZED = 4.0  # times longer than another line, and both are on a logarithmic scale


@dataclass(frozen=True)
class Panel:
    """Which cells, what is drawn of them, and what stands above."""

    title: str
    cells: Sequence[str]
    metric: str


def curve(run: Run, cells: Sequence[str], metric: str) -> pd.DataFrame:
    """By method and step: mean, low and high over repeats of the metric, mean of time and megabytes."""
    rows = run.metrics_by_step
    rows = rows[rows["cell"].isin(list(cells)) & (rows["metric"] == metric)] if len(rows) else rows
    if rows.empty:
        return rows
    found = rows.groupby(["method", "step"], sort=False)
    table = found.agg(
        value=("value", "mean"), low=("value", "min"), high=("value", "max"), time_s=("time_s", "mean"),
        bytes_sent=("bytes_sent", "mean"), repeats=("cell", "nunique"),
    ).reset_index()  # fmt: skip
    table["megabytes"] = table["bytes_sent"] / 1e6
    return table.sort_values(["method", "step"])


def recorded(run: Run) -> set[str]:
    """The metrics that some cell has."""
    return set(run.metrics_by_step["metric"]) if len(run.metrics_by_step) else set()


def draw(run: Run, panels: Sequence[Panel], along: str, *, log_y: bool = False) -> Figure:
    """One panel each; lines named at their ends. Errors of gossip alone fall by powers: they are logarithmic."""
    log_y = log_y or (reading.only_gossips(run) and all("loss" in panel.metric for panel in panels))
    tables = [curve(run, panel.cells, panel.metric) for panel in panels]
    kept = [(panel, table) for panel, table in zip(panels, tables, strict=True) if not table.empty]
    if not kept:
        names = " or ".join(dict.fromkeys(WORDS.get(panel.metric, panel.metric) for panel in panels))
        raise reading.LackingError(f"{run.name}: no cell recorded the {names}")
    looks = reading.looks(run)
    log_x = along != "step" and _far_apart([table for _, table in kept], along)
    made, axes = style.panels(len(kept), share=False)
    ends: list[tuple[Axes, list[End]]] = []
    zeros: list[str] = []
    for index, (one, (panel, table)) in enumerate(zip(axes, kept, strict=True)):
        suspect = _suspect(run, panel.cells) if along == "time_s" else set()
        shown = table[(table[along] > 0) | (not log_x)]
        found, flat = _lines(one, shown, along, looks, suspect, log_y)
        ends.append((one, found))
        zeros += flat
        _axes(one, panel, along, log_x=log_x, log_y=log_y)
        if along == "time_s" and (goal := _goal(run, panel)) is not None:
            one.axhline(goal, color=style.INK, lw=0.7, ls=(0, (1, 2)), alpha=style.QUIET)
        words = FROM_THE_MEAN if reading.only_gossips(run) else WORDS.get(panel.metric, panel.metric)
        if index % 2 == 0 and words not in panel.title:
            one.set_ylabel(style.plain(words))
    same = len({panel.metric for panel, _ in kept}) == 1
    if same:
        _same_limits(axes, log_x)
    _name(made, ends, along, looks)
    repeats = max(int(table["repeats"].max()) for _, table in kept)
    hollow = along == "time_s" and any(_suspect(run, panel.cells) for panel, _ in kept)
    style.remark(
        made,
        f"lines: mean of {repeats} repeats; bands: lowest to highest" if repeats > 1 else "",
        "hollow ends: the emulation was suspect, times may be off" if hollow else "",
        f"not on this scale, always 0: {', '.join(dict.fromkeys(zeros))}" if zeros else "",
        reading.left_out(run) if along == "time_s" else "",
    )
    return made


def _far_apart(tables: Sequence[pd.DataFrame], along: str) -> bool:
    """Whether some lines would be squeezed into a corner."""
    lengths = [float(length) for table in tables for length in table.groupby("method")[along].max()]
    return min(lengths) > 0 and max(lengths) > SQUEEZED * min(lengths)


def _axes(axes: Axes, panel: Panel, along: str, *, log_x: bool, log_y: bool) -> None:
    style.title(axes, panel.title)
    axes.set_xlabel(ALONG[along])
    if log_y:
        axes.set_yscale("log")
        style.log_ticks(axes.yaxis)
    if panel.metric == "test_accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if log_x:
        axes.set_xscale("log")
        style.log_ticks(axes.xaxis)
    else:
        axes.set_xlim(left=0)


def _name(made: Figure, ends: Sequence[tuple[Axes, list[End]]], along: str, looks: dict[str, style.Look]) -> None:
    if along == "step" and max(len(found) for _, found in ends) <= MOST:
        at_ends(made, ends)
        return
    shown = {end.text for _, found in ends for end in found}
    legend(made, [(label, style.handle(look)) for label, look in looks.items() if label in shown])


def _lines(
    axes: Axes, table: pd.DataFrame, along: str, looks: dict[str, style.Look], suspect: set[str], log_y: bool
) -> tuple[list[End], list[str]]:
    ends, flat = [], []
    for method in [label for label in looks if label in set(table["method"])]:
        rows = table[table["method"] == method]
        rows = rows[np.isfinite(rows["value"])]
        if log_y:
            rows = rows[rows["value"] > 0]
        if rows.empty:
            flat.append(method)
            continue
        look = looks[method]
        every = max(1, len(rows) // 6)
        axes.plot(
            rows[along], rows["value"], color=look.colour, ls=look.dash, lw=1.4, marker=look.marker, ms=2.6,
            markevery=every,
        )  # fmt: skip
        if rows["repeats"].max() > 1:
            axes.fill_between(rows[along], rows["low"], rows["high"], color=look.colour, alpha=0.14, lw=0)
        last = rows.iloc[-1]
        face = style.PAPER if method in suspect else look.colour
        axes.plot([last[along]], [last["value"]], marker=look.marker, ms=4.5, mfc=face, mec=look.colour, mew=1.1, ls="")
        ends.append(End(float(last[along]), float(last["value"]), method, look.colour))
    return ends, flat


def _suspect(run: Run, cells: Sequence[str]) -> set[str]:
    """Methods with a cell whose times may be off."""
    rows = run.results[run.results["cell"].isin(list(cells))]
    return set(rows[rows["verdict"] == "suspect"]["method"])


def _goal(run: Run, panel: Panel) -> float | None:
    """The target, where it is a value of this metric."""
    rows = run.results[run.results["cell"].isin(list(panel.cells))]
    if "target" in rows and len(rows) and panel.metric == f"test_{rows['target'].iloc[0]}":
        return float(rows["target_value"].iloc[0])
    return None


def _same_limits(axes: Sequence[Axes], also_x: bool) -> None:
    """Panels of one metric can be compared by eye."""
    for get, put in ((Axes.get_ylim, Axes.set_ylim), (Axes.get_xlim, Axes.set_xlim))[: 2 if also_x else 1]:
        low, high = min(get(one)[0] for one in axes), max(get(one)[1] for one in axes)
        for one in axes:
            put(one, low, high)
