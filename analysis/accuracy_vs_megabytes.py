"""Accuracy against megabytes sent: what each byte buys."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import curves, loss_vs_steps, reading


def draw(run: Run, *, metric: str = "test_accuracy") -> Figure:
    """Against what one worker has sent on average. Bytes do not depend on the network, so one is shown of several."""
    reading.learned(run)
    if metric == "test_accuracy" and metric not in curves.recorded(run):
        metric = "test_loss"
    words = curves.WORDS.get(metric, metric)
    panels = [
        curves.Panel(reading.pretty(setting) or words, cells, metric) for setting, cells in loss_vs_steps.settings(run)
    ]
    return curves.draw(run, panels, "megabytes")


if __name__ == "__main__":
    reading.command(draw)
