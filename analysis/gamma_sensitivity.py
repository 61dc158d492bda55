"""How much the consensus step size γ matters: accuracy at the end against γ, a line per method and compressor."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import options, outcome, reading


def draw(run: Run) -> Figure:
    """From methods that were run with several γ, given or chosen by themselves."""
    reading.learned(run)
    rows = reading.trained(run).copy()
    pairs = zip(rows["options"], rows["decided"], strict=True)
    rows["gamma"] = [options.gamma(given, decided) for given, decided in pairs]
    names = zip(rows["family"], rows["options"], strict=True)
    rows["line"] = [" ".join(filter(None, [family, options.compressor(given)])) for family, given in names]
    rows = rows[rows["gamma"].notna() & (rows["gamma"] > 0)]
    several = rows.groupby("line")["gamma"].nunique()
    rows = rows[rows["line"].isin(several[several > 1].index)]
    if rows.empty:
        hint = "methods: [{choco: {gamma: 0.1}}, {choco: {gamma: 0.4}}, …]"
        raise reading.LackingError(f"{run.name}: no method was run with several γ", hint=hint)
    return outcome.draw(run, rows, "gamma", "consensus step size γ")


if __name__ == "__main__":
    reading.command(draw)
