"""One long trial: its time, its chance, what it counted and what failed."""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

BEGIN = "<!-- stress: begin (replace what is between these two lines with what `make stress` prints) -->"
END = "<!-- stress: end -->"


@dataclass
class Trial:
    """Each part of `make stress` gets one and fills it in."""

    folder: Path
    chance: Random
    end: float  # on the monotonic clock
    counts: Counter[str] = field(default_factory=Counter)
    facts: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    overdue: bool = False  # it did not come to its end

    @property
    def going(self) -> bool:
        return time.monotonic() < self.end

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def fail(self, what: str) -> None:
        self.failures.append(what)

    @property
    def counted(self) -> str:
        return ", ".join([*(f"{number} {what}" for what, number in self.counts.items()), *self.facts])

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.counted, f"{len(self.failures)} failures"]))


def figures(done: Mapping[str, tuple[Trial, float]], *, seed: int) -> str:
    """The section of docs/reliability.md that holds the last figures, from trials and how many seconds each took."""
    where = f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}"
    rows = [
        f"| {name} | {seconds / 60:.1f} | {trial.counted} | {len(trial.failures)} |"
        for name, (trial, seconds) in done.items()
    ]
    said = f"{time.strftime('%Y-%m-%d')}, seed {seed}, {where}:"
    return "\n".join(
        [BEGIN, said, "", "| trial | minutes | what was tried | failures |", "|---|---|---|---|", *rows, END]
    )
