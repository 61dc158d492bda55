"""How far the workers' models are from their average while training goes on: whether gossip holds them together."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import curves, loss_vs_steps, reading


def draw(run: Run, *, along: str = "step") -> Figure:
    """While training: √(1/n Σ‖x_i − x̄‖²), at 0 with all-reduce, which a logarithmic scale does not show. Of a run that
    only gossips: the squared distance from the true mean, 1 being how far they were at first.
    `along`: step, megabytes or time_s."""
    reading.learned(run)
    if along not in curves.ALONG:
        raise reading.LackingError(f"{run.name}: a curve is along {', '.join(curves.ALONG)}, not {along}")
    metric, words = "consensus", curves.WORDS["consensus"]
    if reading.only_gossips(run):
        metric, words = "test_loss", curves.FROM_THE_MEAN
    found = loss_vs_steps.settings(run)
    panels = [curves.Panel(reading.pretty(setting) or words, cells, metric) for setting, cells in found]
    return curves.draw(run, panels, along, log_y=True)


if __name__ == "__main__":
    reading.command(draw)
