"""Every setting that a result depends on: the optimiser's, which all methods share, and each method's own, with what it
chose by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from testbed.results.run import Run
from testbed.scenario.named import brief

from . import reading

SHARED = ("steps", "lr", "momentum", "nesterov", "weight_decay", "warmup", "schedule")


def table(run: Run) -> pd.DataFrame:
    """One row per method and setting of it; `all` are the scenario's."""
    rows = [("all", *row) for row in (*_of_task(run), *_of_training(run))]
    for key, values in run.sweep.items():
        rows.append(("all", key, ", ".join(brief(value) for value in values), "swept"))
    results = run.results
    for method, cells in run.cells.groupby("method", sort=False):
        options, defaults = _options(run, str(cells["cell"].iloc[0]))
        done = list(results[results["method"] == method]["decided"]) if len(results) else []
        chosen: dict[str, list[float]] = {}
        for decided in done:
            for name, value in decided.items():
                chosen.setdefault(name, []).append(value)
        own = {name: (brief(value), "scenario" if name in options else "default") for name, value in defaults.items()}
        own |= {name: (brief(value), "scenario") for name, value in options.items()}
        own |= {name: (_range(values), "chosen by the method") for name, values in chosen.items()}
        rows += [(str(method), name, *found) for name, found in own.items()]
    return pd.DataFrame(rows, columns=["method", "setting", "value", "from"])


def _of_task(run: Run) -> list[tuple[str, str, str]]:
    """Of the first setting's where a sweep changes it. Runs of older versions know only what was said."""
    said = run.data.get("task", {}) if _written(run, "task") else {}
    whole = {**run.data.get("task", {}), **((run.planned[0].task or {}) if run.planned else {})}
    return [
        (name, brief(value), "scenario" if said.get(name) is not None else "default")
        for name, value in whole.items()
        if value is not None
    ]


def _of_training(run: Run) -> list[tuple[str, str, str]]:
    training = run.data.get("training", {})
    return [
        (name, brief(training[name]), "scenario" if _written(run, f"training.{name}") else "default")
        for name in SHARED
        if name in training
    ]


def _written(run: Run, key: str) -> bool:
    """Whether somebody gave it. Runs of older versions do not know: yes."""
    origin = run.directory.origin()
    if origin is None or origin.written is None:
        return True
    return any(one == key or one.startswith(f"{key}.") for one in origin.written)


def _options(run: Run, cell: str) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """What was said of a cell's method, and what it takes where nothing was said."""
    from dataclasses import MISSING, fields

    from testbed.methods.registry import METHODS

    described = next(one for one in run.planned if one.id == cell)
    if ":" in described.method:  # a user's own: reading a run does not run its code
        return described.options, {}
    kind = METHODS.find(described.method)
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    return described.options, defaults


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


if __name__ == "__main__":
    reading.command(table)
