"""What `testbed train` prints: one line per worker and one for their average, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from testbed.worker.result import JobResult
from testbed.worker.snapshots import AVERAGE


def rows(results: Sequence[JobResult]) -> list[dict[str, Any]]:
    """Final test metrics, time and bytes per step of each worker; the last row is their average."""
    lines: list[dict[str, Any]] = [
        {
            "worker": f"w{result.rank}",
            **_tested(result, result.rank),
            "ms_per_step": 1000 * result.seconds / result.steps,
            "bytes_per_step": sum(result.bytes_sent.values()) / result.steps,
            "overruns": result.overruns,
        }
        for result in results
    ]
    average: dict[str, Any] = {"worker": "average"}
    for result in results:
        average |= _tested(result, AVERAGE, results[0].steps)
    for key in ("ms_per_step", "bytes_per_step"):
        average[key] = sum(line[key] for line in lines) / len(lines)
    average["overruns"] = sum(line["overruns"] for line in lines)
    return [*lines, average]


def show(title: str, results: Sequence[JobResult], *, as_json: bool) -> None:
    lines = rows(results)
    warnings = sorted({warning for result in results for warning in result.warnings})
    if as_json:
        decided = results[0].decided
        print(
            json.dumps(
                {"workers": lines[:-1], "average": lines[-1], "decided": decided, "warnings": warnings}, indent=1
            )
        )
        return
    others = {"worker", "consensus", "ms_per_step", "bytes_per_step", "overruns"}
    measures = [*(key for key in lines[-1] if key not in others), "consensus"]
    table = Table(title=title, title_justify="left")
    for name in ("worker", *measures, "ms/step", "kB/step"):
        table.add_column(name, justify="left" if name == "worker" else "right")
    for line in lines:
        values = [f"{line[key]:.4f}" if key in line else "" for key in measures]
        table.add_row(line["worker"], *values, f"{line['ms_per_step']:.2f}", f"{line['bytes_per_step'] / 1000:.1f}")
    console = Console()
    console.print(table)
    for name, value in results[0].decided.items():
        console.print(f"{name}: {value:g}")
    if lines[-1]["overruns"]:
        console.print(f"{lines[-1]['overruns']} gradients took longer than the step time asked for")
    for warning in warnings:
        console.print(f"warning: {warning}", style="yellow")


def _tested(result: JobResult, worker: int, step: int | None = None) -> dict[str, float]:
    """Final values by name: loss, accuracy, perplexity, consensus."""
    last = result.steps if step is None else step
    found = [row for row in result.metrics if row.worker == worker and row.step == last and row.metric != "train_loss"]
    return {row.metric.removeprefix("test_"): row.value for row in found}
