"""Where a step's time goes, by method: gradient, coding, standing still for messages, mixing; beside it the least that
the messages need."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.results.run import Run

from . import reading, style
from .labels import legend

# Sending goes on beside all of these: what a worker spent on it is what it waited for.
STACKED = ("data", "compute", "compress", "wait", "decompress", "mix", "update", "other")
WORDS = {"compute": "forward and backward", "wait": "wait for messages"}
MOST_PANELS = 4


def draw(run: Run, *, setting: str | None = None) -> Figure:
    """Mean over workers and repeats. Of many settings the first, the last and those between them at even distances; or
    the named one."""
    rows = reading.good(run)
    parts = shares(run, rows)
    if parts.empty:
        raise reading.LackingError(f"{run.name}: no cell has a trace")
    settings = list(dict.fromkeys(rows["setting"])) if setting is None else [setting]
    if setting is not None and setting not in set(rows["setting"]):
        raise reading.LackingError(f"{run.name} has no valid cell at {setting!r}", hint="run.cells lists settings")
    shown = _some(settings, MOST_PANELS)
    methods = [label for label in reading.looks(run) if label in set(rows["method"])]
    made, axes = style.panels(len(shown), height=0.25 * len(methods) + 0.75, share=False, around=0.2)
    for index, (one, at) in enumerate(zip(axes, shown, strict=True)):
        here = rows[rows["setting"] == at]
        _bars(one, here, parts[parts["setting"] == at], methods)
        style.title(one, reading.pretty(at))
        one.set_xlabel("time per step, ms")
        if index % 2:
            one.set_yticklabels([])
    seen = [kind for kind in STACKED if (parts[parts["setting"].isin(shown)]["kind"] == kind).any()]
    legend(made, [(WORDS.get(kind, kind), Patch(facecolor=style.KINDS[kind])) for kind in seen])
    style.remark(
        made,
        "line across a bar: what its messages alone need on these links",
        "sending goes on beside the rest; what it costs is the wait" if "wait" in seen else "",
        "hatched: the emulation was suspect" if (rows["verdict"] == "suspect").any() else "",
        f"{len(shown)} of {len(settings)} networks" if len(shown) < len(settings) else "",
        reading.left_out(run),
    )
    return made


def shares(run: Run, rows: pd.DataFrame) -> pd.DataFrame:
    """Seconds per step by setting, method and kind; what spans do not cover is "other"."""
    spans = run.time_by_kind
    if spans.empty:
        return spans
    spans = spans[spans["cell"].isin(list(rows["cell"]))]
    known = rows.set_index("cell")
    by_cell = spans[spans["kind"].isin(STACKED)].groupby(["cell", "kind"])["seconds"].sum().reset_index()
    taken = spans[spans["kind"] == "compute"].groupby("cell")["spans"].sum()  # by those that were there
    all_steps = spans.groupby("cell")["worker"].nunique() * known["steps"].reindex(spans["cell"].unique())
    by_cell["seconds"] /= by_cell["cell"].map(taken.reindex(all_steps.index).fillna(all_steps))
    covered = by_cell.groupby("cell")["seconds"].sum()
    rest = (known["step_s"].reindex(covered.index) - covered).clip(lower=0)
    other = pd.DataFrame({"cell": rest.index, "kind": "other", "seconds": rest.to_numpy()})
    found = pd.concat([by_cell, other], ignore_index=True)
    found["setting"], found["method"] = found["cell"].map(known["setting"]), found["cell"].map(known["method"])
    return found.groupby(["setting", "method", "kind"])["seconds"].mean().reset_index()


def _bars(axes: Axes, rows: pd.DataFrame, parts: pd.DataFrame, methods: Sequence[str]) -> None:
    seconds = parts.set_index(["method", "kind"])["seconds"]
    for place, method in enumerate(reversed(methods)):
        here = rows[rows["method"] == method]
        left = 0.0
        for kind in STACKED:
            width = 1e3 * float(seconds.get((method, kind), 0.0))
            if width > 0:
                axes.barh(place, width, left=left, height=0.62, color=style.KINDS[kind], lw=0)
            left += width
        if here.empty:
            axes.text(
                0,
                place,
                " not valid or not done",
                va="center",
                fontsize=style.SMALL,
                color=style.INK,
                alpha=style.QUIET,
            )
            continue
        if (here["verdict"] == "suspect").any():
            hatched = axes.barh(place, left, height=0.62, facecolor="none", edgecolor=style.INK, hatch="////", lw=0)
            hatched.patches[0].set_alpha(0.3)
        floor = 1e3 * float(here["floor_s"].mean())
        axes.plot([floor, floor], [place - 0.42, place + 0.42], color=style.INK, lw=1.6)
        axes.annotate(
            reading.short(left), (left, place), xytext=(4, 0), textcoords="offset points", va="center",
            fontsize=style.SMALL, color=style.INK,
        )  # fmt: skip
    axes.set_yticks(range(len(methods)), [style.plain(method) for method in reversed(methods)])
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_ylim(-0.6, len(methods) - 0.4)
    axes.margins(x=0.12)
    axes.set_xlim(left=0)


def _some(settings: Sequence[str], most: int) -> list[str]:
    if len(settings) <= most:
        return list(settings)
    return [settings[round(index * (len(settings) - 1) / (most - 1))] for index in range(most)]


if __name__ == "__main__":
    reading.command(draw)
