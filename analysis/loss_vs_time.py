"""Loss against training time, one panel per network: who is ahead when the clock counts."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import curves, reading


def draw(run: Run, *, metric: str = "test_loss") -> Figure:
    """Invalid cells are left out; the dotted line is the target where it is one of this metric."""
    reading.learned(run)
    rows = reading.good(run)
    if metric == "test_loss" and metric not in curves.recorded(run):
        metric = "train_loss"
    panels = [
        curves.Panel(reading.pretty(str(setting)) or curves.WORDS.get(metric, metric), list(some["cell"]), metric)
        for setting, some in rows.groupby("setting", sort=False)
    ]
    return curves.draw(run, panels, "time_s")


if __name__ == "__main__":
    reading.command(draw)
