"""Loss against megabytes sent: what each byte buys, where a task has no accuracy or the loss tells more."""

from __future__ import annotations

from matplotlib.figure import Figure

from analysis import accuracy_vs_megabytes, reading
from testbed.results.opened import Run


def draw(run: Run) -> Figure:
    return accuracy_vs_megabytes.draw(run, metric="test_loss")


if __name__ == "__main__":
    reading.command(draw)
