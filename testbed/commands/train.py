"""`testbed train`: trains over loopback; prints one line per worker and one for their average, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from testbed.worker.result import JobResult
from testbed.worker.snapshots import AVERAGE


def rows(results: Sequence[JobResult]) -> list[dict[str, Any]]:
    """Return final test metrics, time and bytes per step of each worker; the last row is their average."""
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
    """Return final values by name: loss, accuracy, perplexity, consensus."""
    last = result.steps if step is None else step
    found = [row for row in result.metrics if row.worker == worker and row.step == last and row.metric != "train_loss"]
    return {row.metric.removeprefix("test_"): row.value for row in found}


@click.command("train")
@click.option("--local", "workers", required=True, type=click.IntRange(1, 256), help="Workers, over loopback.")
@click.option("--method", default="dpsgd", show_default=True, help="`testbed methods` lists them.")
@click.option("--compressor", help="For methods that compress, e.g. sign or '{topk: 1%}'.")
@click.option("--option", "-o", "options", multiple=True, metavar="KEY=VALUE", help="Of the method, e.g. gamma=0.4.")
@click.option("--task", default="digits", show_default=True, help="As in a scenario, e.g. '{model: cnn, batch: 16}'.")
@click.option("--gossip", default="ring", show_default=True, help="ring, complete, torus, one-peer-exponential, …")
@click.option("--steps", default=100, show_default=True, type=click.IntRange(min=1))
@click.option("--lr", default=0.1, show_default=True)
@click.option("--momentum", default=0.9, show_default=True)
@click.option("--step-time", type=click.FloatRange(min=0), help="Milliseconds that each gradient takes.")
@click.option("--seed", default=1, show_default=True)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Keep metrics, traces and models here.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(
    workers: int,
    method: str,
    compressor: str | None,
    options: tuple[str, ...],
    task: str,
    gossip: str,
    steps: int,
    lr: float,
    momentum: float,
    step_time: float | None,
    seed: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Train on this machine over loopback: try a method before emulating a network for it."""
    from testbed.worker.job import Compute, Training
    from testbed.worker.local import gossip_named, method_spec, parsed, train_local

    compute = Compute() if step_time is None else Compute("step_time", step_time / 1000)
    training = Training(steps=steps, lr=lr, momentum=momentum, compute=compute)
    spec = method_spec(method, compressor, options)
    results = train_local(
        workers, spec, parsed("task", task), gossip_named(gossip, workers, seed), training, seed=seed, directory=out
    )
    show(f"{method} on {gossip}, {workers} workers, {steps} steps", results, as_json=as_json)
