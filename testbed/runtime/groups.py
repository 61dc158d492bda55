"""Control groups: what keeps a worker process to its memory and its share of a processor. The process runtime calls it.

Version 2 and version 1, whichever holds the controller; in our own group, beside it, or at the top, wherever we may
make one. Where we may nowhere, the run says so instead of pretending.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from testbed.network.state import start_time

PREFIX = "testbed-"
PERIOD_US = 20_000  # of processor time: short, so that a worker below a whole core is slow and not jerky


@dataclass(frozen=True)
class Hierarchy:
    """A mounted tree of groups that holds a controller."""

    mount: Path
    own: Path  # the group of this process
    version: int

    def places(self) -> list[Path]:
        """Where to try. Version 2 lets no group have both processes and controlled groups, so beside us is likelier."""
        beside = [self.own.parent] if self.own != self.mount else []
        return list(dict.fromkeys([self.own, *beside, self.mount]))


def find(controller: str, mounts: str, groups: str) -> Hierarchy | None:
    """The hierarchy of a controller, from the texts of /proc/self/mountinfo and /proc/self/cgroup."""
    own: dict[str, str] = {}
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(controllers.split(","), path)
    unified: Hierarchy | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        root, mount = before.split()[3:5]
        kind, _, options = after.split(" ", 2)
        if kind == "cgroup" and controller in options.split(","):
            return Hierarchy(Path(mount), _below(mount, root, own.get(controller, "/")), 1)
        if kind == "cgroup2":
            unified = Hierarchy(Path(mount), _below(mount, root, own.get("", "/")), 2)
    return unified


def _below(mount: str, root: str, path: str) -> Path:
    """A group's directory under a mount that may show only a part of the tree."""
    inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
    return Path(mount) / inside


@dataclass
class Groups:
    """One group for each worker and controller, for the time of a cell."""

    made: list[Path] = field(default_factory=list)  # parents before children
    members: dict[str, list[Path]] = field(default_factory=dict)  # by worker, the groups to join
    watched: dict[str, Path] = field(default_factory=dict)  # by worker, its memory group
    shortcomings: list[str] = field(default_factory=list)

    @staticmethod
    def make(memory: Mapping[str, int], cpus: Mapping[str, float]) -> Groups:
        """By worker: bytes, and processors (only those that whole cores do not express)."""
        groups = Groups()
        if memory or cpus:
            remove_leftovers()
        groups._limit("memory", {name: _memory_files(value) for name, value in memory.items()})
        groups._limit("cpu", {name: _cpu_files(value) for name, value in cpus.items()})
        return groups

    def joined_by(self, worker: str) -> list[str]:
        """The files into which a worker writes 0 to become a member."""
        return [str(group / "cgroup.procs") for group in dict.fromkeys(self.members.get(worker, []))]

    def out_of_memory(self) -> list[str]:
        """The workers of which the kernel has killed a process because the group had no memory left."""
        return [name for name, group in self.watched.items() if kills(group)]

    def close(self) -> None:
        """All members have ended."""
        for group in reversed(self.made):
            with suppress(OSError):  # a leftover is removed by the next run or by `testbed down --all`
                group.rmdir()
        self.made.clear()

    def _limit(self, controller: str, files: Mapping[str, Mapping[int, Sequence[tuple[str, str]]]]) -> None:
        if not files:
            return
        hierarchy = find(controller, _read("/proc/self/mountinfo"), _read("/proc/self/cgroup"))
        if hierarchy is None:
            self.shortcomings.append(f"{_WORDS[controller]} could not be limited: no control groups are mounted here")
            return
        why = ""
        for place in hierarchy.places():
            done = len(self.made)
            try:
                for name, wanted in files.items():
                    group = self._group(place, hierarchy.version, controller, name)
                    for file, value in wanted[hierarchy.version]:
                        _write(group / file, value, optional="sw" in file)
                    self.members.setdefault(name, []).append(group)
                    if controller == "memory":
                        self.watched[name] = group
                return
            except OSError as error:
                why = f"{error.strerror} ({error.filename})"
                self._undo(done)
        self.shortcomings.append(f"{_WORDS[controller]} could not be limited: {why}")

    def _group(self, place: Path, version: int, controller: str, worker: str) -> Path:
        """The group of a worker; in version 2 the same for all controllers."""
        parent = place / _name()
        if parent not in self.made:
            parent.mkdir()
            self.made.append(parent)
        if version == 2:
            for group in (place, parent):
                if controller not in _read(str(group / "cgroup.subtree_control")).split():
                    _write(group / "cgroup.subtree_control", f"+{controller}")
        group = parent / worker
        if group not in self.made:
            group.mkdir()
            self.made.append(group)
        return group

    def _undo(self, done: int) -> None:
        for group in reversed(self.made[done:]):
            with suppress(OSError):
                group.rmdir()
        gone = set(self.made[done:])
        del self.made[done:]
        self.members = {name: [one for one in some if one not in gone] for name, some in self.members.items()}
        self.watched = {name: one for name, one in self.watched.items() if one not in gone}


def join(files: Sequence[str]) -> None:
    """The calling process becomes a member."""
    for file in files:
        _write(Path(file), "0")


def remove_leftovers() -> list[str]:
    """Groups of runs that were killed."""
    removed = []
    for parent in _leftovers():
        with suppress(OSError):  # somebody else's, or still in use
            for child in [one for one in parent.iterdir() if one.is_dir()]:
                child.rmdir()
            parent.rmdir()
            removed.append(str(parent))
    return removed


def _leftovers() -> Iterator[Path]:
    mounts, groups = _read("/proc/self/mountinfo"), _read("/proc/self/cgroup")
    for controller in ("memory", "cpu"):
        hierarchy = find(controller, mounts, groups)
        for place in hierarchy.places() if hierarchy else ():
            for path in place.glob(f"{PREFIX}*-*"):
                pid, _, started = path.name.removeprefix(PREFIX).partition("-")
                if pid.isdecimal() and str(start_time(int(pid))) != started:
                    yield path


_WORDS = {"memory": "memory", "cpu": "processor time"}


def _name() -> str:
    """Tells whose it is even after that process is gone and its number is somebody else's."""
    return f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}"


def _memory_files(limit: int) -> dict[int, list[tuple[str, str]]]:
    return {
        1: [("memory.limit_in_bytes", str(limit)), ("memory.memsw.limit_in_bytes", str(limit))],
        2: [("memory.max", str(limit)), ("memory.swap.max", "0")],
    }


def _cpu_files(cpus: float) -> dict[int, list[tuple[str, str]]]:
    quota = max(1000, round(cpus * PERIOD_US))
    return {
        1: [("cpu.cfs_period_us", str(PERIOD_US)), ("cpu.cfs_quota_us", str(quota))],
        2: [("cpu.max", f"{quota} {PERIOD_US}")],
    }


def memory_group(pid: int) -> Path | None:
    """The group that limits the memory of another process, as far as it can be seen from here."""
    found = find("memory", _read("/proc/self/mountinfo"), _read(f"/proc/{pid}/cgroup"))
    return found.own if found else None


def usage(group: Path) -> int:
    """Bytes of memory that a group's members have now."""
    return next(
        (int(text) for file in ("memory.current", "memory.usage_in_bytes") if (text := _read(str(group / file)))), 0
    )


def kills(group: Path) -> int:
    """How many processes of a group the kernel has killed because the group had no memory left."""
    for file in ("memory.events", "memory.oom_control"):
        for line in _read(str(group / file)).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _write(path: Path, text: str, *, optional: bool = False) -> None:
    """In one piece, and never making a file where the kernel has none. `optional`: kernels without swap lack it."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if optional:
            return
        raise
    try:
        os.write(fd, text.encode())
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        os.close(fd)
