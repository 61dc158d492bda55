"""Loss against megabytes sent: what each byte buys, where a task has no accuracy or the loss tells more."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import accuracy_vs_megabytes, reading


def draw(run: Run) -> Figure:
    return accuracy_vs_megabytes.draw(run, metric="test_loss")


if __name__ == "__main__":
    reading.command(draw)
