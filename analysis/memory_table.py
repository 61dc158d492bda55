"""What each method keeps in memory: the most that a worker shared with nobody, and what is more than all-reduce's."""

from __future__ import annotations

import pandas as pd

from analysis import reading
from testbed.results.comparison import BASELINE
from testbed.results.opened import Run


def table(run: Run) -> pd.DataFrame:
    """Of processes, so Python and the data set are in it; the difference is the method's."""
    rows = reading.good(run)
    rows = rows[rows["memory_bytes"].notna()]
    if rows.empty:
        raise reading.LackingError(f"{run.name}: memory was not measured in any cell")
    found = rows.assign(mb=rows["memory_bytes"].astype(float) / 1e6).groupby("method", sort=False)["mb"]
    made = found.agg(["mean", "min", "max", "count"]).round(1).reset_index()
    made.columns = pd.Index(["method", "MB per worker", "lowest", "highest", "cells"])
    stock = made[made["method"] == BASELINE]["MB per worker"]
    if len(stock):
        made.insert(2, "more than all-reduce, MB", (made["MB per worker"] - stock.iloc[0]).round(1))
    return made


if __name__ == "__main__":
    reading.command(table)
