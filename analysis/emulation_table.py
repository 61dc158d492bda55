"""Every link as asked and as measured, with its verdict: the table behind analysis.emulation."""

from __future__ import annotations

import pandas as pd

from analysis import emulation, reading
from testbed.results.opened import Run


def table(run: Run) -> pd.DataFrame:
    return emulation.table(run)


if __name__ == "__main__":
    reading.command(table)
