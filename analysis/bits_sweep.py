"""What rounding to fewer bits costs: accuracy at the end against bits per number, a line per method."""

from __future__ import annotations

from matplotlib.figure import Figure

from testbed.results.run import Run

from . import options, outcome, reading


def draw(run: Run) -> Figure:
    """From methods that were run with several compressors that round each number."""
    reading.learned(run)
    rows = reading.trained(run).copy()
    rows["bits"] = [options.bits(given) for given in rows["options"]]
    rows["line"] = rows["family"]
    rows = rows[rows["bits"].notna()]
    several = rows.groupby("line")["bits"].nunique()
    rows = rows[rows["line"].isin(several[several > 1].index)]
    if rows.empty:
        raise reading.LackingError(
            f"{run.name}: no method was run with several bit widths",
            hint="methods: [{dcd: {compressor: {quantize: 8bit}}}, {dcd: {compressor: {quantize: 4bit}}}, …]",
        )
    return outcome.draw(run, rows, "bits", "bits per number: fewer to the right", falling=True)


if __name__ == "__main__":
    reading.command(draw)
