"""What each method keeps in memory: the most that a worker shared with nobody, and how it differs from all-reduce's."""

from __future__ import annotations

import pandas as pd

from testbed.results.comparison import BASELINE
from testbed.results.run import Run

from . import reading

NOISE = 0.5  # MB: a worker is looked at some times a second, and its allocator gives back what it likes


def table(run: Run) -> pd.DataFrame:
    """Of processes, so Python and the data set are in it; the difference is the method's. All-reduce has a copy of the
    model and Gloo's own buffers, so others may well have less. None where the cells of both cannot be told apart."""
    rows = reading.good(run)
    rows = rows[rows["memory_bytes"].notna()]
    if rows.empty:
        raise reading.LackingError(f"{run.name}: memory was not measured in any cell")
    found = rows.assign(mb=rows["memory_bytes"].astype(float) / 1e6).groupby("method", sort=False)["mb"]
    made = found.agg(["mean", "min", "max", "count"]).round(1).reset_index()
    made.columns = pd.Index(["method", "MB per worker", "lowest", "highest", "cells"])
    stock = made[made["method"] == BASELINE]
    if len(stock):
        own = stock.iloc[0]
        apart = (made["lowest"] > own["highest"] + NOISE) | (made["highest"] < own["lowest"] - NOISE)
        difference = (made["MB per worker"] - own["MB per worker"]).round(1)
        made.insert(2, "difference from all-reduce, MB", difference.where(apart))
    return made


if __name__ == "__main__":
    reading.command(table)
