"""Methods and compressors side by side on every network: accuracy, bytes on the wire, compression, time, speed-up."""

from __future__ import annotations

from typing import Any

import pandas as pd

from testbed.results.comparison import BASELINE, compare
from testbed.results.run import Run

from . import reading


def table(run: Run) -> pd.DataFrame:
    """A row per network and method. Accuracy and loss: mean ± standard deviation over seeds, from another network where
    all cells of this one failed: until a worker is lost, the network does not touch what is learned. A target that was
    not reached is never a number; invalid cells are left out and counted, and so are those that diverged: where all
    did, that is told instead of an accuracy and a time."""
    trained = reading.trained(run)
    lines = run.compare()
    steps = reading.steps_per_epoch(run)
    stock = lines[lines["method"] == BASELINE].set_index("setting")["bytes_per_step"]
    goals = lines.dropna(subset="target").groupby("setting")["target"].first()
    made = []
    for line, told in zip(lines.to_dict("records"), _divergences(run), strict=True):
        same = trained[trained["method"] == line["method"]]
        own = same[same["setting"] == line["setting"]]
        own = same.drop_duplicates("seed") if own.empty else own
        row: dict[str, Any] = {"network": reading.pretty(line["setting"]) or None, "method": line["method"]}
        if run.learns:
            row["accuracy"] = _spread(own, "test_accuracy", "{:.1%}") or told
            row["loss"] = _spread(own, "test_loss", "{:.3f}") or told
        row["kB per step"] = _number(line["bytes_per_step"], 1e-3)
        row["× fewer bytes"] = _number(stock.get(line["setting"]), 1 / (line["bytes_per_step"] or float("nan")))
        row["s per epoch" if steps else "s per step"] = _number(line["step_s"], steps or 1)
        if goal := goals.get(line["setting"]):
            row[f"s to {goal}"] = _number(line["target_s"]) or ("not reached" if line["runs"] else told)
        row["× all-reduce"] = _number(line["speedup"])
        row["doubt"] = _doubt(line)
        made.append(row)
    return pd.DataFrame(made).dropna(axis="columns", how="all")


def _divergences(run: Run) -> list[str | None]:
    """Of each line whose training diverged in every repeat: where."""
    return [None if line.runs else line.divergence or None for line in compare(list(run.raw.values()))]


def _doubt(line: dict[Any, Any]) -> str | None:
    counts = [(name, int(line[name])) for name in ("invalid", "failed", "diverged")]
    words = [f"{count} {name}" for name, count in counts if count]
    return ", ".join([*words, *(["suspect"] if line["verdict"] == "suspect" else [])]) or None


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
