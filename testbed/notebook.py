"""What `import testbed` offers to notebooks and scripts: load a scenario, bring it up, open a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import ScenarioError

if TYPE_CHECKING:
    from testbed.results.run import Run
    from testbed.scenario.model import Scenario


def load(
    scenario: str | Path | Mapping[str, Any] | Scenario, sets: Sequence[str] = (), profile: str | None = None
) -> Scenario:
    """A validated scenario from a file, from YAML in a text of several lines, or from a mapping as the file would hold.
    `sets`: changes such as "network.link.rate=10mbit"; `profile`: one of its own. ScenarioError says what is wrong."""
    from testbed.scenario import load as files
    from testbed.scenario.model import Scenario

    if isinstance(scenario, Scenario):
        if sets or profile:
            raise ScenarioError("a scenario that is loaded already is not changed", hint="say so when loading it")
        return scenario
    if isinstance(scenario, Mapping):
        return files.loads(_as_yaml(scenario), "scenario", sets, profile)
    if isinstance(scenario, str) and "\n" in scenario:
        return files.loads(scenario, "scenario", sets, profile)
    return files.load(scenario, sets, profile)


def open_run(path: str | Path) -> Run:
    """A run's directory as tables: `run.results`, `run.metrics`, `run.links`, `run.compare()`, …"""
    from testbed.results.run import open_run

    return open_run(path)


def up(
    scenario: str | Path | Mapping[str, Any] | Scenario,
    out: str | Path | None = None,
    *,
    sets: Sequence[str] = (),
    profile: str | None = None,
    only: Sequence[str] = (),
    box: str | None = None,
    runtime: str | None = None,
    calibrating: bool = True,
) -> Run:
    """What `testbed up` does: build the network, run every cell, judge and compare; then the opened run. Cells that
    failed or were not faithful are in `run.verdicts`; TestbedError where the run could not be made."""
    from testbed.commands.up import Request, run
    from testbed.results.directory import RunDirectory
    from testbed.runtime import registry

    for what, given, known in (("runtime", runtime, registry.NAMES), ("box", box, ("auto", "host", "uml"))):
        if given is not None and given not in known:
            raise ScenarioError(f"there is no {what} {given!r}", hint=f"there are: {', '.join(known)}")
    only = (only,) if isinstance(only, str) else only
    loaded = load(scenario, sets, profile)
    path = RunDirectory.create(loaded.name, None if out is None else Path(out)).path
    request = Request(
        None, out=path, box=box, runtime=runtime, only=tuple(only), calibrating=calibrating, scenario=loaded
    )
    try:
        run(request)
    except BaseException:
        with suppress(OSError):  # it holds something: a run that can be resumed
            (path / "cells").rmdir()
            path.rmdir()
        raise
    return open_run(path)


def _as_yaml(data: Mapping[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(_plain(data), sort_keys=False, allow_unicode=True)


def _plain(value: Any) -> Any:
    """Without tuples, paths and quantities, which YAML does not know."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or type(value) in (bool, int, float, str) else str(value)
