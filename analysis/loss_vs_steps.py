"""Loss and accuracy against steps: whether a method learns as much per step as all-reduce, whatever the network."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import curves, reading

METRICS = ("test_loss", "test_accuracy")


def draw(run: Run) -> Figure:
    """Loss and, where there is one, accuracy. A network never touches the maths, so of a sweep over networks one is
    shown; other swept values get panels of their own."""
    reading.learned(run)
    panels = [
        curves.Panel(" · ".join(filter(None, [reading.pretty(setting), curves.WORDS[metric]])), cells, metric)
        for setting, cells in settings(run)
        for metric in _metrics(run)
    ]
    return curves.draw(run, panels, "step")


def _metrics(run: Run) -> list[str]:
    return [metric for metric in METRICS if metric in curves.recorded(run)] or ["train_loss"]


def settings(run: Run) -> list[tuple[str, list[str]]]:
    """The cells of one network for each combination of what else was swept."""
    results = reading.worked(run)
    others = [name for name, key in zip(run.swept, run.sweep, strict=True) if not key.startswith("network.")]
    found: list[tuple[str, list[str]]] = []
    groups = results.groupby([f"{name}_text" for name in others], sort=False) if others else [((), results)]
    for values, rows in groups:
        most = rows["point"].value_counts(sort=False)
        cells = rows[rows["point"] == most.idxmax()]["cell"]
        words = " ".join(f"{name}={value}" for name, value in zip(others, values, strict=True))
        found.append((words, list(cells)))
    return found


if __name__ == "__main__":
    reading.command(draw)
