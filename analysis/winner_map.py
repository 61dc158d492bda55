"""Which method wins where: a map over latency and bandwidth, with its speed-up over stock all-reduce and over the best
all-reduce there is (a ring of our own, DDP, compressed ones), which is the fairer yardstick."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from testbed.answer.inputs import setup
from testbed.answer.sentence import leaders
from testbed.results.comparison import BASELINE, compare
from testbed.results.run import Run

from . import against, reading, style

ALL_REDUCES = (BASELINE, "ring", "ddp", "ef_sign")
STRONGEST = 20.0  # times faster, and the colour is at its fullest


@dataclass(frozen=True)
class Win:
    """The fastest method on one network."""

    method: str
    over_stock: float | None  # None: stock all-reduce has no time here
    over_best: float | None
    suspect: bool  # its own time, or the yardstick's
    equals: int = 0  # other methods whose times cannot be told from its own


def draw(run: Run) -> Figure:
    """By the time to the target where one was set, else by the time of a step."""
    latency, rate = against.swept(run, ".latency"), against.swept(run, ".rate")
    reading.good(run)
    lines = run.compare()
    others = [name for name in run.swept if name not in (latency, rate)]
    if others:
        raise reading.LackingError(
            f"{run.name}: {', '.join(others)} was swept, too", hint="a map is over latency and rate alone"
        )
    measure, words = _measure(lines)
    first = Counter(setting for setting, _ in _leaders(run))  # how many lead there; unfinished networks have no leader
    wins = {
        (float(rows[latency].iloc[0]), float(rows[rate].iloc[0])): replace(win, equals=first[str(setting)] - 1)
        for setting, rows in lines.groupby("setting")
        if first[str(setting)] and (win := winner(rows, measure)) is not None
    }
    if not wins:
        raise reading.LackingError(f"{run.name}: no method has a valid time on any of its networks")
    looks, texts = reading.looks(run), {**_texts(run, latency), **_texts(run, rate)}
    rows, columns = sorted(set(lines[latency])), sorted(set(lines[rate]), reverse=True)
    yardsticks = [("stock", "stock all-reduce"), ("best", "the best all-reduce")]
    yardsticks = yardsticks if len(set(lines["method"][lines["family"].isin(ALL_REDUCES)])) > 1 else yardsticks[:1]
    made = style.figure(style.WIDE * (1.22 if len(yardsticks) > 1 else 0.8), 0.62 * len(rows) + 0.9)
    axes = [style.bare(one) for one in made.subplots(1, len(yardsticks), sharey=True, squeeze=False).flat]
    for one, (over, words_over) in zip(axes, yardsticks, strict=True):
        style.title(one, f"times faster than {words_over}")
        _map(one, wins, rows, columns, looks, over)
        one.set_xticks(range(len(columns)), [style.plain(texts[value]) for value in columns])
        one.set_xlabel("bandwidth of a link")
    axes[0].set_yticks(range(len(rows)), [style.plain(texts[value]) for value in rows])
    axes[0].set_ylabel("latency of a link")
    hatched = any(win.suspect for win in wins.values())
    missing = len(rows) * len(columns) - len(wins)
    style.remark(
        made,
        f"by {words}; the name is the fastest method's, deeper colour is a larger lead",
        "hatched: the emulation was suspect" if hatched else "",
        "+ 1: another method's time cannot be told from its" if any(win.equals for win in wins.values()) else "",
        f"empty: no complete result at {missing} of {len(rows) * len(columns)} networks" if missing else "",
        reading.left_out(run),
    )
    return made


def _leaders(run: Run) -> set[tuple[str, str]]:
    """By the same rule as the report's answer."""
    results = list(run.raw.values())
    return leaders(compare(results), setup(run.directory, done=len(results)))


def winner(rows: pd.DataFrame, measure: str) -> Win | None:
    """Among the lines of one setting. Pure."""
    timed = rows[rows[measure].notna() & (rows["diverged"] == 0)]
    if timed.empty:
        return None
    best = timed.sort_values(measure, kind="stable").iloc[0]
    stock = timed[timed["method"] == BASELINE]
    reduces = timed[timed["family"].isin(ALL_REDUCES)]
    fastest = reduces.sort_values(measure, kind="stable").iloc[0] if len(reduces) else None
    judged = [best["verdict"], *stock["verdict"], *([fastest["verdict"]] if fastest is not None else [])]
    return Win(
        str(best["method"]),
        float(stock[measure].iloc[0] / best[measure]) if len(stock) else None,
        float(fastest[measure] / best[measure]) if fastest is not None else None,
        "suspect" in judged,
    )


def _measure(lines: pd.DataFrame) -> tuple[str, str]:
    if lines["target_s"].notna().any():
        return "target_s", f"time to {lines['target'].dropna().iloc[0]}"
    return "step_s", "time per step" + (", as nobody reached the target" if lines["target"].notna().any() else "")


def _texts(run: Run, name: str) -> dict[float, str]:
    return {
        value: reading.quantity(text) for value, text in zip(run.cells[name], run.cells[f"{name}_text"], strict=True)
    }


def _map(
    axes: Axes,
    wins: dict[tuple[float, float], Win],
    rows: list[float],
    columns: list[float],
    looks: dict[str, style.Look],
    over: str,
) -> None:
    axes.grid(False)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for (latency, rate), win in wins.items():
        x, y = columns.index(rate), rows.index(latency)
        times = win.over_stock if over == "stock" else win.over_best
        colour = looks[win.method].colour
        strength = 0.12 + 0.5 * min(1.0, np.log(max(times or 1.0, 1.0)) / np.log(STRONGEST))
        axes.add_patch(Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor=colour, alpha=strength, lw=0))
        if win.suspect:
            hatched = Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, facecolor="none", edgecolor=colour, hatch="////")
            hatched.set_linewidth(0)
            hatched.set_alpha(0.35)
            axes.add_patch(hatched)
        words = "–" if times is None else f"{times:.3g}×" if times < 100 else f"{times:.0f}×"
        name = f"{win.method} + {win.equals}" if win.equals else win.method
        axes.text(x, y + 0.13, style.plain(name), ha="center", va="center", fontsize=_fitting(name), color=style.INK)
        axes.text(x, y - 0.2, words, ha="center", va="center", fontsize=style.SIZE, color=style.INK, weight="bold")


def _fitting(text: str) -> float:
    return style.SMALL if len(text) < 13 else style.SMALL * 12.5 / len(text)


if __name__ == "__main__":
    reading.command(draw)
