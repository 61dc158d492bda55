"""What more workers do to the time of a step, beside the least it could take."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import against, reading


def draw(run: Run) -> Figure:
    """From a sweep over `workers` (or over the size of a topology)."""
    rows = against.times(run, None)
    if rows["workers"].nunique() < 2:
        words = f"{run.name}: the number of workers was not swept"
        raise reading.LackingError(words, hint="sweep: {workers: [4, 8, 16]}")
    keys = [name for name, key in zip(run.swept, run.sweep, strict=True) if key in ("workers", "workers.count")]
    return against.draw(run, "workers", rows, ("workers", "time per step, s"), instead_of=keys)


if __name__ == "__main__":
    reading.command(draw)
