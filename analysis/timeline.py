"""What each worker did when, for a few steps of one cell: a lane per worker, and below it its messages by peer."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from testbed.results.run import Run

from . import reading, style
from .labels import legend

MOST_WORKERS = 8
MESSAGES = ("send", "receive")
COLUMNS = ("worker", "kind", "step", "peer", "start_ns", "end_ns")


def draw(run: Run, *, cell: str | None = None, first_step: int | None = None, steps: int = 3) -> Figure:
    """By default three steps near the middle of the first valid gossip cell."""
    chosen = cell or _usual(run)
    spans = run.trace_of(chosen, COLUMNS)
    first = _quiet(spans, steps) if first_step is None else first_step
    spans = spans[spans["kind"] != "eval"]
    spans = spans[(spans["step"] >= first) & (spans["step"] < first + steps)]
    if spans.empty:
        raise reading.LackingError(f"{run.name}: cell {chosen} has no spans in steps {first} to {first + steps - 1}")
    known = run.cells.set_index("cell").loc[chosen]
    workers = sorted(int(worker) for worker in set(spans["worker"]))
    names = _names(run, chosen, workers[-1] + 1)
    shown = workers[:MOST_WORKERS]
    begin = int(spans["start_ns"].min())
    made = style.figure(1.22 * style.WIDE, 0.44 * len(shown) + 0.9)
    axes = style.bare(made.subplots())
    for place, worker in enumerate(reversed(shown)):
        _lane(axes, spans[spans["worker"] == worker], place, begin)
    for number in range(first, first + steps):
        start = spans[(spans["step"] == number) & (spans["worker"] == workers[0])]["start_ns"].min()
        at = (start - begin) / 1e6
        axes.axvline(at, color=style.INK, lw=0.7, ls=(0, (1, 2)), alpha=style.QUIET)
        axes.annotate(
            f"step {number}", (at, len(shown) - 0.45), xytext=(2, 0), textcoords="offset points",
            fontsize=style.SMALL, color=style.INK, alpha=style.QUIET,
        )  # fmt: skip
    axes.set_yticks(range(len(shown)), [style.plain(names[worker]) for worker in reversed(shown)])
    axes.tick_params(axis="y", length=0)
    axes.grid(False, axis="y")
    axes.set_ylim(-0.55, len(shown) - 0.2)
    axes.set_xlim(0, (int(spans["end_ns"].max()) - begin) / 1e6)
    axes.set_xlabel("ms")
    style.title(axes, " · ".join(filter(None, [str(known["method"]), reading.pretty(str(known["setting"]))])))
    seen = [kind for kind in style.KINDS if (spans["kind"] == kind).any()]
    legend(made, [(kind, Patch(facecolor=style.KINDS[kind])) for kind in seen])
    style.remark(
        made,
        "thick: what the worker itself does; thin below: its messages under way, a line per peer",
        f"{len(shown)} of {len(workers)} workers" if len(shown) < len(workers) else "",
        f"dotted: {names[workers[0]]}'s steps begin",
    )
    return made


def _quiet(spans: pd.DataFrame, steps: int) -> int:
    """The first of that many steps near the middle between which no model was put aside for evaluation."""
    middle, last = int(spans["step"].max()) // 2, int(spans["step"].max())
    busy = {int(step) for step in spans[spans["kind"] == "eval"]["step"]}
    near = sorted(range(max(1, last - steps + 2)), key=lambda first: (abs(first - middle), first))
    return next((first for first in near if not busy & set(range(first + 1, first + steps))), middle)


def _names(run: Run, cell: str, count: int) -> list[str]:
    """As the network calls them, where all of them were there to the end."""
    found = list(run.raw[cell].payload) if cell in run.raw else []
    return found if len(found) >= count else [f"w{rank}" for rank in range(count)]


def _usual(run: Run) -> str:
    rows = reading.good(run)
    gossip = rows[~rows["family"].isin(["allreduce", "ddp", "ring"])]
    return str((gossip if len(gossip) else rows)["cell"].iloc[0])


def _lane(axes: Axes, spans: pd.DataFrame, place: int, begin: int) -> None:
    """One worker."""
    for kind, some in spans.groupby("kind", observed=True):
        if kind not in MESSAGES:
            axes.broken_barh(_bars(some, begin), (place - 0.02, 0.34), facecolor=style.KINDS[str(kind)], lw=0)
    messages = spans[spans["kind"].isin(MESSAGES)]
    peers = sorted(set(messages["peer"]))
    height = 0.3 / max(len(peers), 1)
    for number, peer in enumerate(peers):
        low = place - 0.08 - height * (number + 1)
        for kind in MESSAGES:
            some = messages[(messages["peer"] == peer) & (messages["kind"] == kind)]
            axes.broken_barh(_bars(some, begin), (low, 0.75 * height), facecolor=style.KINDS[kind], lw=0)


def _bars(spans: pd.DataFrame, begin: int) -> list[tuple[float, float]]:
    start = (spans["start_ns"].to_numpy() - begin) / 1e6
    width = (spans["end_ns"] - spans["start_ns"]).to_numpy() / 1e6
    return list(zip(start.astype(np.float64), width.astype(np.float64), strict=True))


if __name__ == "__main__":
    reading.command(draw)
