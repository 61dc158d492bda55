"""The recorded runs, opened, and copies of them that a test may change."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).parent / "recorded"
SWEEP, FAULTS = RECORDED / "sweep", RECORDED / "faults"


def copy(run: Path, to: Path) -> Path:
    return Path(shutil.copytree(run, to / run.name))


def change(run: Path, cell: str, **values: Any) -> None:
    """Change what a cell's result says."""
    file = run / "cells" / cell / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def emulate(run: Path) -> None:
    """As if no gradient had been computed."""
    file = run / "scenario.yaml"
    text = file.read_text()
    assert "step_time: 30ms" in text
    file.write_text(text.replace("step_time: 30ms", "emulated: 30ms"))
