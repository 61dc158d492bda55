"""Time against a value that was swept: what the figures over bandwidth, latency and the number of workers share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from testbed.results.run import Run

from . import reading, style
from .labels import MOST, End, at_ends, legend


def swept(run: Run, *endings: str) -> str:
    """The column of the swept key that ends so. LackingError where none is."""
    for name, key in zip(run.swept, run.sweep, strict=True):
        if key.endswith(endings) and len(run.sweep[key]) > 1:
            if not pd.api.types.is_numeric_dtype(run.cells[name]):
                raise reading.LackingError(f"{run.name}: the values of {key} are not numbers")
            return name
    key = endings[0].lstrip(".")
    raise reading.LackingError(
        f"{run.name}: {key} was not swept", hint=f"sweep: {{network.link.{key}: […]}}, two values or more"
    )


def times(run: Run, steps: int | None) -> pd.DataFrame:
    """Of every cell that counts: `value`, seconds per step or per `steps`, and `floor`, less than which is impossible:
    the longer of its gradient and its messages."""
    rows = reading.good(run).copy()
    rows["value"] = rows["step_s"] * (steps or 1)
    rows["floor"] = rows[["floor_s", "compute_s"]].max(axis=1) * (steps or 1)
    return rows


def epochs(run: Run) -> tuple[pd.DataFrame, str]:
    """`times` of an epoch, and what to call them."""
    steps = reading.steps_per_epoch(run)
    return times(run, steps), f"time per epoch of {steps} steps, s" if steps else "time per step, s"


def draw(
    run: Run,
    x: str,
    values: pd.DataFrame,
    words: tuple[str, str],
    *,
    falling: bool = False,
    instead_of: Sequence[str] = (),
) -> Figure:
    """`values` has a row per cell: `value` and `floor` (which may be missing). A panel for each combination of the
    other swept values; hollow points are suspect; bars go from the lowest to the highest repeat. `falling`: the smaller
    x, the worse. `instead_of`: swept columns that x stands for."""
    others = [name for name in run.swept if name != x and name not in instead_of]
    groups = list(values.groupby([f"{name}_text" for name in others], sort=False)) if others else [((), values)]
    looks = reading.looks(run)
    scale = Scale.of(values, x, falling)
    made, axes = style.panels(len(groups))
    ends = []
    for index, (one, (setting, rows)) in enumerate(zip(axes, groups, strict=True)):
        ends.append((one, [_line(one, rows, x, scale, method, looks[method]) for method in _present(rows, looks)]))
        pairs = zip(others, setting, strict=True)
        style.title(one, " · ".join(f"{name} {reading.quantity(str(value))}" for name, value in pairs))
        scale.apply(one)
        one.set_xlabel(style.plain(words[0]) if index + 2 >= len(axes) else "")
        one.set_ylabel(style.plain(words[1]) if index % 2 == 0 else "")
    if max(len(found) for _, found in ends) > MOST:
        legend(made, [(label, style.handle(looks[label])) for label in _present(values, looks)])
    else:
        at_ends(made, ends)
    repeats = int(values.groupby(["method", "setting"])["cell"].count().max())
    style.remark(
        made,
        "dotted: less is impossible, the longer of a gradient and its messages"
        if values["floor"].notna().any()
        else "",
        f"points: mean of {repeats} repeats; bars: lowest to highest" if repeats > 1 else "",
        "hollow: the emulation was suspect" if (values["verdict"] == "suspect").any() else "",
        reading.left_out(run),
    )
    return made


def _present(rows: pd.DataFrame, looks: dict[str, style.Look]) -> list[str]:
    return [label for label in looks if label in set(rows["method"])]


@dataclass(frozen=True)
class Scale:
    """Where the values of x stand: on a logarithmic axis, or evenly where one of them is 0 or unlimited."""

    places: dict[float, float]
    texts: dict[float, str]
    logarithmic: bool
    falling: bool
    log_y: bool

    @classmethod
    def of(cls, values: pd.DataFrame, x: str, falling: bool) -> Scale:
        points = sorted(set(values[x]))
        logarithmic = points[0] > 0 and np.isfinite(points[-1])
        places = {value: value if logarithmic else float(index) for index, value in enumerate(points)}
        written = f"{x}_text" if f"{x}_text" in values else x
        texts = {value: reading.quantity(str(text)) for value, text in zip(values[x], values[written], strict=True)}
        return cls(places, texts, logarithmic, falling, bool((values["value"] > 0).all()))

    def apply(self, axes: Axes) -> None:
        if self.logarithmic:
            axes.set_xscale("log")
        if self.log_y:
            axes.set_yscale("log")
            style.log_ticks(axes.yaxis)
        axes.xaxis.set_major_locator(FixedLocator(list(self.places.values())))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([style.plain(self.texts[value]) for value in self.places])
        if self.falling and not axes.xaxis_inverted():
            axes.invert_xaxis()


def _line(axes: Axes, rows: pd.DataFrame, x: str, scale: Scale, method: str, look: style.Look) -> End:
    """One method's line; its end is where networks are worst."""
    table = rows[rows["method"] == method].groupby(x).agg(
        value=("value", "mean"), low=("value", "min"), high=("value", "max"), floor=("floor", "mean"),
        suspect=("verdict", lambda grades: bool((grades == "suspect").any())),
    )  # fmt: skip
    at = np.array([scale.places[value] for value in table.index])
    axes.plot(at, table["value"], color=look.colour, ls=look.dash, lw=1.4)
    axes.plot(at, table["floor"], color=look.colour, ls=(0, (1, 1.6)), lw=1.0, alpha=0.8)
    bars = [table["value"] - table["low"], table["high"] - table["value"]]
    axes.errorbar(at, table["value"], yerr=bars, fmt="none", ecolor=look.colour, elinewidth=0.9, capsize=2)
    for hollow, face in ((True, style.PAPER), (False, look.colour)):
        some = table["suspect"].to_numpy() == hollow
        axes.plot(at[some], table["value"][some], marker=look.marker, ms=4.8, mfc=face, mec=look.colour, mew=1.1, ls="")
    end = 0 if scale.falling else -1
    return End(float(at[end]), float(table["value"].iloc[end]), method, look.colour)
