"""How close the emulated links came to what was asked: deviation of round trip, throughput and loss, with the bounds
beyond which a link is suspect or invalid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from testbed.results.run import Run
from testbed.verdict import GOODPUT_RELATIVE, RTT_ABSOLUTE, RTT_RELATIVE

from . import reading, style
from .labels import legend

MOST_ROWS = 30
Floats = NDArray[np.float64]


def table(run: Run) -> pd.DataFrame:
    """A row per network, pair and direction, in the units people use."""
    links = _measured(run)
    return pd.DataFrame(
        {
            "network": links["setting"].map(reading.pretty),
            "link": links["link"],
            "round trip asked, ms": (1e3 * links["rtt_asked_s"]).round(3),
            "measured, ms": (1e3 * links["rtt_s"].astype(float)).round(3),
            "rate asked, Mbit/s": links["rate_asked"].astype(float) / 1e6,
            "goodput possible, Mbit/s": (links["goodput_asked"].astype(float) / 1e6).round(2),
            "goodput measured, Mbit/s": (links["goodput"].astype(float) / 1e6).round(2),
            "loss asked": links["loss_asked"],
            "loss measured": links["loss"].astype(float).round(4),
            "verdict": links["grade"],
        }
    )


def draw(run: Run) -> Figure:
    """One row per network where there are several, with a point per direction of each link; else one row per link."""
    links = _measured(run)
    by = "setting" if links["setting"].nunique() > 1 else "link"
    rows = list(dict.fromkeys(links[by]))
    left_out, rows = rows[MOST_ROWS:], rows[:MOST_ROWS]
    links = links[links[by].isin(rows)].copy()
    links["rtt_off"] = 1e3 * (links["rtt_s"].astype(float) - links["rtt_asked_s"])
    links["rate_off"] = links["goodput"].astype(float) / links["goodput_asked"].astype(float) - 1
    made = style.figure(1.22 * style.WIDE, 0.24 * len(rows) + 1.1)
    first, second = (style.bare(one) for one in made.subplots(1, 2, sharey=True))
    places = {name: len(rows) - 1 - index for index, name in enumerate(rows)}
    for one, column, title, unit in (
        (first, "rtt_off", "round trip", "measured − asked, ms"),
        (second, "rate_off", "throughput", "measured / asked − 1"),
    ):
        _points(one, links, by, places, column)
        style.title(one, title)
        one.set_xlabel(unit)
        one.xaxis.set_major_locator(MaxNLocator(5))
    allowed = links.groupby(by)["rtt_asked_s"].first().map(lambda asked: 1e3 * max(RTT_ABSOLUTE, RTT_RELATIVE * asked))
    for name, width in allowed.items():
        first.barh(places[name], 2 * width, left=-width, height=0.8, color=style.INK, alpha=0.07, lw=0)
    second.axvspan(-GOODPUT_RELATIVE, GOODPUT_RELATIVE, color=style.INK, alpha=0.07, lw=0)
    second.xaxis.set_major_formatter("{x:+.1%}")
    texts = [reading.pretty(name) if by == "setting" else name.replace(">", " → ") for name in rows]
    first.set_yticks([places[name] for name in rows], [style.plain(text) for text in texts])
    grades = [grade for grade in ("faithful", "suspect", "invalid") if (links["grade"] == grade).any()]
    legend(made, [(grade, _dot(grade)) for grade in grades])
    silent, unlimited = int(links["rtt_s"].isna().sum()), int(links["rate_off"].isna().sum())
    style.remark(
        made,
        "grey: within these bounds a link is faithful; a point is one direction of one link",
        f"no round trip: {silent} of {len(links)} directions did not answer" if silent else "",
        f"no throughput: not limited or not measured in {unlimited} of {len(links)} directions" if unlimited else "",
        f"and {len(left_out)} more: python -m testbed.analysis.emulation_table" if left_out else "",
    )
    return made


def _measured(run: Run) -> pd.DataFrame:
    links = run.links
    if links.empty:
        raise reading.LackingError(f"{run.name}: its links were not measured", hint="testbed up without --no-calibrate")
    return links


def _points(axes: Axes, links: pd.DataFrame, by: str, places: dict[str, int], column: str) -> None:
    axes.axvline(0, color=style.INK, lw=0.8)
    axes.grid(False, axis="y")
    axes.tick_params(axis="y", length=0)
    for grade, some in links.groupby("grade", sort=False):
        values = some[column].to_numpy(dtype=float)
        heights = np.array([places[name] for name in some[by]], dtype=float)
        heights += np.resize([-0.16, 0.16], len(heights)) if by == "setting" else 0.0
        axes.add_line(_dot(str(grade), values, heights))
    axes.autoscale_view()
    axes.set_ylim(-0.6, len(places) - 0.4)


def _dot(grade: str, x: Sequence[float] | Floats = (), y: Sequence[float] | Floats = ()) -> Line2D:
    """Points of links with this grade; those that are not faithful are hollow."""
    colour = style.GRADES[grade]
    face = colour if grade == "faithful" else style.PAPER
    return Line2D(x, y, ls="", marker="X" if grade == "invalid" else "o", ms=4.2, mfc=face, mec=colour, mew=1.0)


if __name__ == "__main__":
    reading.command(draw)
