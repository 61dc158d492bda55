"""The run directory is the database: what a run is, and its cells' results. The controller writes it, analysis reads
it.

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
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from importlib import metadata
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from testbed import safe_files
from testbed.errors import ScenarioError, StorageError
from testbed.results import surroundings, validated
from testbed.results.cell import PLANNED, RESULT, CellResult, PlannedCell
from testbed.results.surroundings import ENVIRONMENT, NETWORK, ORIGIN, Environment, MeasuredNetwork, Origin
from testbed.safe_files import DamagedError

PACKAGES = ("testbed", "torch", "numpy", "pyroute2", "networkx", "pyarrow")
LENT, NOTICES = "lent", "notices"  # beside cells/, while one runs
LITTLE = 1 << 20  # bytes: a disk with less is full
SYSCTLS = ("net.ipv4.tcp_congestion_control", "net.core.rmem_max", "net.core.wmem_max", "kernel.sched_rt_runtime_us")

T = TypeVar("T")


class RunDirectory:
    """One run on disk. Readers leave out what is damaged and name it in `damaged`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged: dict[str, DamagedError] = {}

    @staticmethod
    def create(name: str, out: Path | None) -> RunDirectory:
        """Make a new directory: the named one (which must not hold a run yet) or runs/<name>-<time>."""
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
        """Open an existing run."""
        try:
            known = (path / "scenario.yaml").is_file() and (path / "cells").is_dir()
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from error
        if not known:
            raise ScenarioError(
                f"{path} is not a run directory", hint="it should hold scenario.yaml and cells/; see testbed runs"
            )
        return RunDirectory(path.resolve())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from running cells here meanwhile. However this process ends, the kernel lets go."""
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
        """Turn what the disk refuses inside into one clear error."""
        try:
            yield
        except OSError as error:
            if error.errno not in StorageError.full + StorageError.closed:
                raise
            raise StorageError.of(self.path, error) from error

    def refuses(self) -> bool:
        """Whether the disk is full, for any user: tried, since root and others may see different limits."""
        found = os.statvfs(self.path)
        if found.f_bavail * found.f_frsize < LITTLE or (found.f_files and not found.f_favail):
            return True
        try:
            with tempfile.TemporaryFile(dir=self.path) as file:
                file.write(bytes(LITTLE))
        except OSError:
            return True
        return False

    def write_text(self, name: str, text: str) -> None:
        """Write a file, complete or not at all."""
        target = self.path / name
        part = target.with_suffix(".part")
        with self.writing():
            part.write_text(text)
            part.rename(target)

    def write_json(self, name: str, data: Any) -> None:
        self.write_text(name, json.dumps(data, indent=1, default=_plain))

    def read_json(self, name: str, default: Any = None) -> Any:
        """Return what `write_json` wrote, if it did: for files that no type describes."""
        file = self.path / name
        try:
            return safe_files.read_json(file, most=validated.MOST, follow=True)
        except FileNotFoundError:
            return default
        except DamagedError as error:
            raise StorageError(f"{file} cannot be read: {error.why}", hint=validated.HINT) from error

    def cells(self) -> list[PlannedCell]:
        """Return all cells of the plan; none before it was made. DamagedError where they cannot be read."""
        found: dict[str, PlannedCell] = {}
        for cell in self._several("cells.json", PLANNED):
            with self.skipping():
                if cell.id in found:
                    raise DamagedError(f"{self.path / 'cells.json'}, {cell.id}", "there are two of this name")
                found[cell.id] = cell
        return list(found.values())

    def results(self) -> Iterator[CellResult]:
        """Yield the results of all complete cells, in the order of the plan."""
        for cell in self.cells():
            if result := self.result(cell):
                yield result

    def result(self, cell: PlannedCell) -> CellResult | None:
        """Return the result of one cell; None where it is not complete, or damaged."""
        found = self._one(f"cells/{cell.id}/result.json", RESULT)
        return None if found is None else replace(found, cell=cell)

    def networks(self) -> list[MeasuredNetwork]:
        """Return every measurement of its networks, in the order in which they were made."""
        with self.skipping():
            return self._several("links.json", NETWORK)
        return []

    def environment(self) -> Environment | None:
        """Return the environment; None before its first network was up."""
        return self._one("environment.json", ENVIRONMENT)

    def origin(self) -> Origin | None:
        """Return the origin; runs of old versions have none."""
        return self._one("origin.json", ORIGIN)

    def scenario_text(self) -> str:
        return surroundings.scenario_text(self.path / "scenario.yaml")

    def scenario_data(self) -> dict[str, Any]:
        """Return plain data; today's schema need not accept it. DamagedError where it is none at all."""
        return surroundings.scenario_data(self.path / "scenario.yaml")

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Go on after the block where something inside is damaged, and record that."""
        try:
            yield
        except DamagedError as error:
            self.damaged.setdefault(str(error.path), error)

    def complaints(self) -> list[str]:
        """Return a line for everything found damaged so far."""
        return [f"{error}: left out" for error in self.damaged.values()]

    def _one(self, name: str, adapter: TypeAdapter[T]) -> T | None:
        """Return what a file says; None where there is none, or it is damaged."""
        with self.skipping(), suppress(FileNotFoundError):
            return validated.read(self.path / name, adapter)
        return None

    def _several(self, name: str, adapter: TypeAdapter[T]) -> list[T]:
        """Return the list in a file, without damaged entries."""
        file = self.path / name
        try:
            entries = safe_files.read_json(file, most=validated.MOST, follow=True)
        except FileNotFoundError:
            return []
        if not isinstance(entries, list):
            raise DamagedError(file, "it holds no list", hint=validated.HINT)
        found = []
        for number, entry in enumerate(entries):
            with self.skipping():
                found.append(validated.parse(_encoded(entry), adapter, Path(f"{file}, entry {number}")))
        if entries and not found:
            raise DamagedError(file, "nothing in it makes sense", hint=validated.HINT)
        return found

    def cell(self, cell_id: str) -> Path:
        return self.path / "cells" / cell_id

    def lent(self, cell_id: str) -> Path:
        """Return the directory that workers of a cell may write to, while it runs. Nothing of ours is written there,
        and what is read from it is hostile input."""
        return self.path / LENT / cell_id

    def notices(self, cell_id: str) -> Path:
        """Return the directory of notices to workers of a running cell; they only read it."""
        return self.path / NOTICES / cell_id

    def begin(self, cell_id: str, keep: Sequence[str] = ()) -> bool:
        """Make a cell's directories, without what an earlier attempt left. Of what its workers wrote, entries of these
        names stay, if all of them are there, for the workers to read; return whether they do."""
        lent, kept = self.lent(cell_id), False
        with self.writing():
            if keep and all((lent / name).is_dir() and not (lent / name).is_symlink() for name in keep):
                kept = True
                for path in (path for path in lent.iterdir() if path.name not in keep):
                    safe_files.remove_tree(path)
                safe_files.remove_tree(self.notices(cell_id))
            else:
                self.end(cell_id)
            safe_files.remove_tree(self.cell(cell_id))
            (self.cell(cell_id) / "logs").mkdir(parents=True)
            for path in (lent, self.notices(cell_id)):
                path.mkdir(parents=True, exist_ok=kept)
                for one in (path, path.parent):
                    one.chmod(0o755)  # workers may be another user, whatever the umask
        return kept

    def keep_files(self, cell_id: str, ours: Sequence[str]) -> None:
        """Move what user code in workers has left into the cell's directory: all but these patterns, which are ours."""
        lent = self.lent(cell_id)
        for path in (path for pattern in ours for path in lent.glob(pattern)):
            safe_files.remove_tree(path)
        if any(lent.iterdir()):
            safe_files.tame_tree(lent)
            lent.rename(self.cell(cell_id) / "files")

    def end(self, cell_id: str) -> None:
        """Remove what was only for the workers of a cell."""
        for path in (self.lent(cell_id), self.notices(cell_id)):
            safe_files.remove_tree(path)

    def close(self) -> None:
        """Release the run: no cell runs here any more."""
        for path in (self.lent(""), self.notices("")):
            with suppress(OSError):  # of a cell that was interrupted, which goes on from there
                path.rmdir()


def _encoded(entry: Any) -> bytes:
    return json.dumps(entry).encode()


def _plain(value: object) -> Any:
    """Convert what JSON does not know."""
    return sorted(value) if isinstance(value, set | frozenset) else str(value)


def _free(path: Path) -> Path:
    """Make this directory, or one with a number behind its name where another run began in the same second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            candidate.mkdir()
            return candidate
    raise AssertionError("numbers do not end")


def environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything about this machine that a reader needs to judge or repeat the run."""
    return {
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": ["testbed", *sys.argv[1:]],  # without the path where it is installed
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
    """Return what matters to times and has changed since the run began; nothing where it was not resumed."""
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
    """Return the commit of the testbed itself, where it runs from a checkout."""
    try:
        root = Path(__file__).resolve().parents[2]
        done = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
    except OSError:
        return None
    return done.stdout.strip() or None
