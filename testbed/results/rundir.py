"""The run directory is the database: what a run is, what each cell gave. The controller writes it, analysis reads it.

A cell is complete when its `result.json` exists; everything else is written before, so a crash leaves a directory that
can be read and resumed.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any

from testbed.errors import ScenarioError, StorageError

PACKAGES = ("testbed", "torch", "numpy", "pyroute2", "networkx", "pyarrow")
SYSCTLS = ("net.ipv4.tcp_congestion_control", "net.core.rmem_max", "net.core.wmem_max", "kernel.sched_rt_runtime_us")


class RunDirectory:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def create(name: str, out: Path | None) -> RunDirectory:
        """A new directory: the named one (which must not hold a run yet) or runs/<name>-<time>."""
        if out and (out / "scenario.yaml").exists():
            raise ScenarioError(f"{out} holds a run already", hint=f"testbed up --resume {out}, or another --out")
        path = out or Path("runs") / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
        try:
            path = path if out else _free(path)
            (path / "cells").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else runs cells here meanwhile. However this process ends, the kernel lets go."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                words = f"another testbed up is running in {self.path}"
                raise StorageError(words, hint="wait for it, or name another place with --out") from None
            yield
        finally:
            os.close(fd)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """What the disk refuses inside becomes one clear error."""
        try:
            yield
        except OSError as error:
            if error.errno not in StorageError.full + StorageError.closed:
                raise
            raise StorageError.of(self.path, error) from error

    def write_text(self, name: str, text: str) -> None:
        """Complete or not at all."""
        target = self.path / name
        part = target.with_suffix(".part")
        with self.writing():
            part.write_text(text)
            part.rename(target)

    def write_json(self, name: str, data: Any) -> None:
        self.write_text(name, json.dumps(data, indent=1, default=_plain))

    def read_json(self, name: str, default: Any = None) -> Any:
        """What `write_json` wrote, if it did."""
        file = self.path / name
        try:
            return json.loads(file.read_text())
        except FileNotFoundError:
            return default
        except (OSError, ValueError) as error:
            raise StorageError(f"{file} cannot be read: {error}", hint="was it changed by hand?") from error

    def cell(self, cell_id: str) -> Path:
        return self.path / "cells" / cell_id

    def remove_links(self, cell_id: str) -> None:
        """Symbolic links that workers made: what is written next shall not follow them out of the run."""
        for path in self.cell(cell_id).rglob("*"):
            if path.is_symlink():
                path.unlink()

    def results(self) -> Iterator[dict[str, Any]]:
        """The results of all complete cells, in the order of the plan."""
        for cell in self.read_json("cells.json", []):
            result = self.read_json(name := f"cells/{cell['id']}/result.json")
            if result is not None and not (isinstance(result, dict) and "verdict" in result and "error" in result):
                raise StorageError(f"{self.path / name} is no result of a cell", hint="was it changed by hand?")
            if result is not None:
                yield {**cell, **result}


def _plain(value: object) -> Any:
    """What JSON does not know."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _free(path: Path) -> Path:
    """Make this directory, or one with a number behind its name where somebody else began in the same second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            candidate.mkdir()
            return candidate
    raise AssertionError("numbers do not end")


def environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Everything about this machine that a reader needs to judge or repeat the run."""
    return {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": ["testbed", *sys.argv[1:]],  # where it is installed matters to nobody else
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


def moved(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str:
    """What matters to times and is not as it was when the run began; nothing where it was not resumed."""
    while before and before.get("resumes"):
        before = before["resumes"]
    if not before:
        return ""
    found = [key for key in ("machine", "cpu", "cores", "box", "runtime") if before.get(key) != now.get(key)]
    return ", ".join(f"{key} {now.get(key)} instead of {before.get(key)}" for key in found)


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
