"""Time of an epoch against the links' latency (of a step where the size of an epoch is not known)."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import against, reading


def draw(run: Run) -> Figure:
    """Steps were measured; an epoch is that many of them."""
    latency = against.swept(run, ".latency")
    values, words = against.epochs(run)
    return against.draw(run, latency, values, ("one-way latency of a link", words))


if __name__ == "__main__":
    reading.command(draw)
