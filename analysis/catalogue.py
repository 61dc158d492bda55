"""All figures and tables in the order of a report. The HTML report walks through it and skips what a run lacks."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

FIGURES = (
    "loss_vs_time",
    "loss_vs_steps",
    "accuracy_vs_megabytes",
    "loss_vs_bytes",
    "time_breakdown",
    "step_time_vs_bandwidth",
    "epoch_time_vs_bandwidth",
    "epoch_time_vs_latency",
    "winner_map",
    "scaling",
    "bits_sweep",
    "gamma_sensitivity",
    "consensus_error",
    "difference_spectrum",
    "network_map",
    "emulation",
    "timeline",
)
TABLES = ("method_table", "exchange_table", "memory_table", "hyperparameters", "emulation_table")


def module(name: str) -> ModuleType:
    """With `draw(run)` or `table(run)`."""
    return import_module(f"testbed.analysis.{name}")


def caption(name: str) -> str:
    """What it shows, in a sentence or two."""
    return " ".join((module(name).__doc__ or "").split())
