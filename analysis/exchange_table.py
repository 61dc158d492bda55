"""How close steps come to the least that their messages, gradients and codec need on these links."""

from __future__ import annotations

import pandas as pd

from testbed.results.run import Run

from . import reading


def table(run: Run) -> pd.DataFrame:
    """A row per network and method, in milliseconds per step. The exchange is that of a step's slowest message from
    hand-over to arrival, hidden behind the gradient or not: median of the steps in which that was seen, and their
    spread. The least is max(compute, floor) + codec where messages travel behind the gradient, else the sum of all."""
    rows = reading.good(run)
    rows = rows[rows["exchange_s"].notna() & (rows["floor_s"] > 0)] if "exchange_s" in rows else rows.iloc[:0]
    if rows.empty:
        raise reading.LackingError(f"{run.name}: no trace shows how long messages took")
    made = []
    for (setting, method), some in rows.groupby(["setting", "method"], sort=False):
        spread, exchange, codec, floor, step, least = (
            1e3 * some[name].astype(float).mean()
            for name in ("exchange_spread_s", "exchange_s", "codec_s", "floor_s", "step_s", "least_s")
        )
        made.append(
            {
                "network": reading.pretty(str(setting)) or None,
                "method": method,
                "exchange, ms": round(exchange, 2),
                "±": round(spread, 2),
                "codec, ms": round(codec, 2),
                "floor, ms": round(floor, 2),
                "(exchange + codec) / (floor + codec)": round((exchange + codec) / (floor + codec), 2),
                "step, ms": round(step, 2),
                "step / least": round(step / least, 2),
                "paced": _paced(some),
            }
        )
    return pd.DataFrame(made).dropna(axis="columns", how="all")


def _paced(some: pd.DataFrame) -> str | None:
    """Share of the connections that were, and at which rate."""
    share, rate = (pd.to_numeric(some[name], errors="coerce").mean() for name in ("paced", "paced_rate"))
    if pd.isna(share):
        return None
    return f"{share:.0%}" + ("" if pd.isna(rate) else f" at {rate / 1e6:.3g} Mbit/s")


if __name__ == "__main__":
    reading.command(table)
