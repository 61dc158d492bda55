"""Methods and compressors side by side on every network: accuracy, bytes on the wire, compression, time, speed-up."""

from __future__ import annotations

import pandas as pd

from analysis import reading
from testbed.results.comparison import BASELINE
from testbed.results.opened import Run


def table(run: Run) -> pd.DataFrame:
    """A row per network and method. Accuracy and loss: mean ± standard deviation over seeds, from whichever networks
    they were trained on. A target that was not reached is never a number; invalid cells are left out and counted."""
    seeds = reading.worked(run).drop_duplicates(["method", "seed"])
    lines = run.compare()
    steps = reading.steps_per_epoch(run)
    stock = lines[lines["method"] == BASELINE].set_index("setting")["bytes_per_step"]
    made = []
    for line in lines.to_dict("records"):
        own = seeds[seeds["method"] == line["method"]]
        row = {"network": reading.pretty(line["setting"]), "method": line["method"]}
        if run.learns:
            row["accuracy"] = _spread(own, "test_accuracy", "{:.1%}")
            row["loss"] = _spread(own, "test_loss", "{:.3f}")
        row["kB per step"] = _number(line["bytes_per_step"], 1e-3)
        row["× fewer bytes"] = _number(stock.get(line["setting"]), 1 / (line["bytes_per_step"] or float("nan")))
        row["s per epoch" if steps else "s per step"] = _number(line["step_s"], steps or 1)
        if line["target"]:
            row[f"s to {line['target']}"] = _number(line["target_s"]) or ("not reached" if line["runs"] else None)
        row["× all-reduce"] = _number(line["speedup"])
        row["doubt"] = _doubt(line["verdict"], int(line["invalid"]), int(line["failed"]))
        made.append(row)
    return pd.DataFrame(made).dropna(axis="columns", how="all")


def _doubt(verdict: str, invalid: int, failed: int) -> str | None:
    words = [f"{count} {name}" for name, count in (("invalid", invalid), ("failed", failed)) if count]
    return ", ".join([*words, *(["suspect"] if verdict == "suspect" else [])]) or None


def _spread(rows: pd.DataFrame, column: str, form: str) -> str | None:
    values = rows[column].dropna().astype(float) if column in rows else pd.Series(dtype=float)
    if values.empty:
        return None
    mean = form.format(values.mean())
    return f"{mean} ± {form.format(values.std())}" if len(values) > 1 else mean


def _number(value: float | None, factor: float = 1.0) -> str | None:
    return None if value is None or pd.isna(value) or pd.isna(factor) else reading.short(value * factor)


if __name__ == "__main__":
    reading.command(table)
