"""Time of an epoch against the links' bandwidth (of a step where the size of an epoch is not known)."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import against, reading
from .step_time_vs_bandwidth import BANDWIDTH


def draw(run: Run) -> Figure:
    """Steps were measured; an epoch is that many of them."""
    rate = against.swept(run, ".rate")
    values, words = against.epochs(run)
    return against.draw(run, rate, values, (BANDWIDTH, words), falling=True)


if __name__ == "__main__":
    reading.command(draw)
