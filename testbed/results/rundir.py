"""The run directory is the database: what a run is, what each cell gave. The controller writes it, analysis reads it.

A cell is complete when its `result.json` exists; everything else is written before, so a crash leaves a directory that
can be read and resumed.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError, TestbedError

PACKAGES = ("testbed", "torch", "numpy", "pyroute2", "networkx", "pyarrow")
SYSCTLS = ("net.ipv4.tcp_congestion_control", "net.core.rmem_max", "net.core.wmem_max", "kernel.sched_rt_runtime_us")


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(name: str, out: Path | None) -> RunDirectory:
        """A new directory: the named one (which must not hold a run yet) or runs/<name>-<time>."""
        path = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
        if (path / "scenario.yaml").exists():
            raise ScenarioError(f"{path} holds a run already", hint=f"--resume {path}, or another --out")
        try:
            (path / "cells").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TestbedError(
                f"cannot write the run's results to {path}: {error.strerror}",
                hint="choose another place with --out DIR",
            ) from error
        return RunDirectory(path.resolve())

    @staticmethod
    def open(path: Path) -> RunDirectory:
        """An existing run."""
        if not (path / "scenario.yaml").is_file() or not (path / "cells").is_dir():
            raise ScenarioError(
                f"{path} is not a run directory", hint="it should hold scenario.yaml and cells/; see testbed runs"
            )
        return RunDirectory(path.resolve())

    def write_json(self, name: str, data: Any) -> None:
        """Complete or not at all."""
        target = self.path / name
        part = target.with_suffix(".part")
        part.write_text(json.dumps(data, indent=1, default=str))
        part.rename(target)

    def read_json(self, name: str, default: Any = None) -> Any:
        try:
            return json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return default

    def cell(self, cell_id: str) -> Path:
        return self.path / "cells" / cell_id

    def results(self) -> Iterator[dict[str, Any]]:
        """The results of all complete cells, in the order of the plan."""
        for cell in self.read_json("cells.json", []):
            result = self.read_json(f"cells/{cell['id']}/result.json")
            if result is not None:
                yield {**cell, **result}


def environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything about this machine that a reader needs to judge or repeat the run."""
    return {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "sysctls": {key: _sysctl(key) for key in SYSCTLS},
        "git": _git(),
        **settings,
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _sysctl(key: str) -> str | None:
    try:
        return Path("/proc/sys", *key.split(".")).read_text().strip()
    except OSError:
        return None


def _git() -> str | None:
    """The commit of the testbed itself, where it runs from a checkout."""
    try:
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() or None
