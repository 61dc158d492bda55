"""Every link as asked and as measured, with its verdict: the table behind testbed.analysis.emulation."""

from __future__ import annotations

import pandas as pd

from testbed.results.run import Run

from . import emulation, reading


def table(run: Run) -> pd.DataFrame:
    return emulation.table(run)


if __name__ == "__main__":
    reading.command(table)
