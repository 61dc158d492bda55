"""How close exchanges come to the least that their messages need on these links: with compressing and decompressing,
against the floor with the same."""

from __future__ import annotations

import pandas as pd

from analysis import reading
from testbed.results.opened import Run


def table(run: Run) -> pd.DataFrame:
    """A row per network and method, in milliseconds per step. The exchange is that of messages from hand-over to
    arrival, hidden behind the gradient or not, in the steps in which that was seen."""
    rows = reading.good(run)
    rows = rows[rows["exchange_s"].notna() & (rows["floor_s"] > 0)] if "exchange_s" in rows else rows.iloc[:0]
    if rows.empty:
        raise reading.LackingError(f"{run.name}: no trace shows how long messages took")
    made = []
    for (setting, method), some in rows.groupby(["setting", "method"], sort=False):
        exchange, codec, floor = (
            1e3 * some[name].astype(float).mean() for name in ("exchange_s", "codec_s", "floor_s")
        )
        made.append(
            {
                "network": reading.pretty(str(setting)) or None,
                "method": method,
                "exchange, ms": round(exchange, 2),
                "codec, ms": round(codec, 2),
                "floor, ms": round(floor, 2),
                "(exchange + codec) / (floor + codec)": round((exchange + codec) / (floor + codec), 2),
            }
        )
    return pd.DataFrame(made).dropna(axis="columns", how="all")


if __name__ == "__main__":
    reading.command(table)
