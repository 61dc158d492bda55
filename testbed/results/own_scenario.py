"""The scenario that a run was begun with."""

from __future__ import annotations

from pathlib import Path

from testbed.results.directory import RunDirectory
from testbed.scenario.load import load
from testbed.scenario.model import Scenario


def own_scenario(run: RunDirectory) -> Scenario:
    """Load it; the files that it names must still be where they were."""
    run.scenario_text()  # that it can be read at all
    origin = run.origin()
    for damage in run.damaged.values():
        if damage.path.name == "origin.json":
            raise damage
    return load(run.path / "scenario.yaml", directory=Path(origin.directory) if origin else run.path)
