"""`testbed bench report`: what the report and the exports of a large run cost, each as a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from testbed.bench.table import Row
from testbed.errors import TestbedError
from testbed.results.directory import RunDirectory

SECONDS, GIGABYTES, MEGABYTES = 30.0, 1.0, 5.0  # goals: to write, in memory, of the page


@dataclass(frozen=True)
class Cost:
    """Of one command."""

    seconds: float
    gigabytes: float  # at its peak


def run(workers: int, steps: int, repeat: int, say: Callable[[str], None]) -> list[Row]:
    """In a temporary directory, which needs about 120 MB per million worker steps."""
    with tempfile.TemporaryDirectory(prefix="testbed-bench-") as place:
        directory, began = Path(place, "large"), time.monotonic()
        # Elsewhere, since the memory of whoever starts a process counts as that of the process until it has its own.
        elsewhere = multiprocessing.get_context("spawn").Process(target=_make, args=(directory, workers, steps, repeat))
        elsewhere.start()
        elsewhere.join()
        made = RunDirectory.open(directory)
        say(f"made a run of {workers} workers × {steps} steps in {time.monotonic() - began:.0f} s")
        cells = [cell["id"] for cell in made.read_json("cells.json")]
        busiest = max(cells, key=lambda cell: (made.cell(cell) / "trace.parquet").stat().st_size)
        file = Path(place, "trace.json.gz")
        report = command("report", str(directory))
        trace = command("trace", str(directory), "--cell", busiest, "--perfetto", str(file))
        export = command("export", str(directory), "--csv", f"{place}/csv")
        page = (directory / "report.html").stat().st_size / 1e6
        return [
            *_rows("report", report),
            Row("report: page", page, "MB", goal=f"≤ {MEGABYTES:g} MB", met=page <= MEGABYTES),
            *_rows("trace of one cell", trace),
            Row("trace of one cell: file", file.stat().st_size / 1e6, "MB"),
            *_rows("export as CSV", export),
        ]


def _make(directory: Path, workers: int, steps: int, repeat: int) -> None:
    from testbed.bench.large_run import make

    make(directory, workers, steps, repeat=repeat)


def _rows(what: str, cost: Cost) -> list[Row]:
    return [
        Row(f"{what}: time", cost.seconds, "s", goal=f"≤ {SECONDS:g} s", met=cost.seconds <= SECONDS),
        Row(f"{what}: memory", cost.gigabytes, "GB", goal=f"≤ {GIGABYTES:g} GB", met=cost.gigabytes <= GIGABYTES),
    ]


def command(*words: str) -> Cost:
    """What `testbed WORDS` costs, from start to end."""
    began = time.monotonic()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    arguments = [sys.executable, "-P", "-m", "testbed.cli", *words]
    child = os.posix_spawn(sys.executable, arguments, os.environ, file_actions=quiet)
    _, status, usage = os.wait4(child, 0)
    if code := os.waitstatus_to_exitcode(status):
        raise TestbedError(f"testbed {words[0]} of the made-up run ended with {code}", hint="it says why above")
    return Cost(time.monotonic() - began, usage.ru_maxrss * 1024 / 1e9)
