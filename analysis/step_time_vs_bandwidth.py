"""Time of a step against the links' bandwidth, beside the least it could take: who suffers when bytes are slow."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import against, reading

BANDWIDTH = "bandwidth of a link: slower to the right"


def draw(run: Run) -> Figure:
    """Both axes logarithmic; a panel for each other swept value."""
    rate = against.swept(run, ".rate")
    return against.draw(run, rate, against.times(run, None), (BANDWIDTH, "time per step, s"), falling=True)


if __name__ == "__main__":
    reading.command(draw)
