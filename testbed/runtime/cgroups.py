"""Control groups: limit a worker process's memory, share of a processor and number of processes. The process runtime
calls it.

Version 2 and version 1, whichever holds the controller; in our own group, beside it, or at the top, wherever we may
make one. Where we may nowhere, the run reports it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from testbed.runtime import controllers
from testbed.runtime.controllers import PREFIX, read, write

PERIOD_US = 20_000  # of processor time: short, so that a worker below a whole core is slow and not jerky
REMEDY = "systemd-run --user --scope -p Delegate=yes testbed up …"

Files = Mapping[int, Sequence[tuple[str, str]]]  # by version, what to write into which files of a group


@dataclass(frozen=True)
class Hierarchy:
    """A mounted tree of groups that holds a controller."""

    mount: Path
    own: Path  # the group of this process
    version: int

    def places(self) -> list[Path]:
        """Return places to try. No version 2 group has both processes and controlled groups: beside us is likelier."""
        beside = [self.own.parent] if self.own != self.mount else []
        return list(dict.fromkeys([self.own, *beside, self.mount]))


def find(controller: str, mounts: str, groups: str) -> Hierarchy | None:
    """Find the hierarchy of a controller in the texts of /proc/self/mountinfo and /proc/self/cgroup."""
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
    """Return a group's directory under a mount that may show only a part of the tree."""
    inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
    return Path(mount) / inside


@dataclass
class Groups:
    """One group for each worker and hierarchy, for one cell."""

    made: list[Path] = field(default_factory=list)  # parents before children
    members: dict[str, list[Path]] = field(default_factory=dict)  # by worker, the groups to join
    watched: dict[str, Path] = field(default_factory=dict)  # by worker, its memory group
    shortcomings: list[str] = field(default_factory=list)
    processes_limited: bool = False  # not asked for by users, so it is no shortcoming where it is missing

    @staticmethod
    def make(
        memory: Mapping[str, int], cpus: Mapping[str, float], processes: Mapping[str, int] | None = None
    ) -> Groups:
        """Make the groups. By worker: bytes, processors (only fractions of a core), and number of processes."""
        groups = Groups()
        if not (memory or cpus or processes):
            return groups
        remove_leftovers()
        wanted: dict[str, dict[str, Files]] = {
            "memory": {name: _memory_files(value) for name, value in memory.items()},
            "cpu": {name: _cpu_files(value) for name, value in cpus.items()},
            "pids": {name: _process_files(value) for name, value in (processes or {}).items()},
        }
        together: dict[Hierarchy, dict[str, dict[str, Files]]] = {}
        for controller, files in wanted.items():
            if not files:
                continue
            if hierarchy := _hierarchy(controller):
                together.setdefault(hierarchy, {})[controller] = files
            else:
                groups._lacks(controller, "no control groups are mounted here")
        for hierarchy, files_of in together.items():
            groups._limit(hierarchy, files_of)
        return groups

    def joined_by(self, worker: str) -> list[str]:
        """Return the files into which a worker writes 0 to become a member."""
        return [str(group / "cgroup.procs") for group in self.members.get(worker, [])]

    def out_of_memory(self) -> list[str]:
        """Return the workers of which the kernel killed a process because the group was out of memory."""
        return [name for name, group in self.watched.items() if kills(group)]

    def close(self) -> None:
        """Remove the groups; all members have ended."""
        self._undo(0)

    def _limit(self, hierarchy: Hierarchy, wanted: Mapping[str, Mapping[str, Files]]) -> None:
        """Use one place for all controllers: a process is in one group of a hierarchy, and joining a second one
        silently leaves the first and its limits. Where no place has all controllers, memory is worth most."""
        errors: dict[tuple[Path, frozenset[str]], str] = {}
        places = hierarchy.places()
        for some in _by_worth(wanted):
            for place in places:
                try:
                    self._build(place, hierarchy.version, {name: wanted[name] for name in wanted if name in some})
                except OSError as error:
                    errors[place, some] = f"{error.strerror} ({error.filename})"
                    continue
                self.processes_limited = self.processes_limited or "pids" in some
                for controller in wanted.keys() - some:  # why not here, and why not where most is allowed
                    why = dict.fromkeys(errors[where, some | {controller}] for where in (place, places[-1]))
                    self._lacks(controller, ", ".join(why), hierarchy)
                return
        for controller in wanted:
            self._lacks(controller, errors[places[-1], frozenset({controller})], hierarchy)

    def _build(self, place: Path, version: int, wanted: Mapping[str, Mapping[str, Files]]) -> None:
        """Make a group for each worker with all of its limits, or none and raise."""
        needed, missing, done = list(wanted), list[str](), len(self.made)
        claims = set[str]()
        if version == 2:
            missing = controllers.not_handed_on(place, needed)
            claims = {*missing, *(controllers.claimed_in(place) & set(needed))}
        found: dict[str, Path] = {}
        try:
            parent = self._make(controllers.new_group(place, claims))
            if version == 2:
                controllers.hand_on(place, missing)
                controllers.hand_on(parent, needed)
            for files_of in wanted.values():
                for name, files in files_of.items():
                    group = found[name] = found.get(name) or self._make(parent / name)
                    for file, value in files[version]:
                        write(group / file, value, optional="sw" in file)
        except OSError:
            self._undo(done)
            raise
        for name, group in found.items():
            self.members.setdefault(name, []).append(group)
        self.watched |= {name: found[name] for name in wanted.get("memory", ())}

    def _make(self, group: Path) -> Path:
        group.mkdir()
        self.made.append(group)
        return group

    def _undo(self, done: int) -> None:
        for group in reversed(self.made[done:]):
            with suppress(OSError):  # a leftover is removed by a later run or by `testbed down --all`
                controllers.remove(group)
        del self.made[done:]

    def _lacks(self, controller: str, why: str, hierarchy: Hierarchy | None = None) -> None:
        if controller not in _WORDS:
            return
        words = f"{_WORDS[controller]} could not be limited: {why}"
        if hierarchy and hierarchy.version == 2 and os.geteuid() != 0:
            words += f"; an ordinary user may limit it in a group of their own: {REMEDY}"
        self.shortcomings.append(words)


def join(files: Sequence[str]) -> list[str]:
    """Make the calling process a member. Return, in words, which of its limits do not hold: where it may not join, and
    where it is not a member in the end, whatever the kernel has said."""
    shortcomings, joined = [], []
    for file in map(Path, files):
        try:
            write(file, "0")
            joined.append(file)
        except OSError as error:
            shortcomings.append(f"the worker's limits could not be applied: {error.strerror} ({file})")
    for file in joined:  # only now: joining a group may leave another
        if str(os.getpid()) not in read(file).split():
            shortcomings.append(f"the worker's limits do not hold: it is not in {file.parent}")
    return shortcomings


def remove_leftovers() -> list[str]:
    """Remove groups of killed runs."""
    removed = []
    for parent in _leftovers():
        with suppress(OSError):  # somebody else's, or still in use
            for child in [one for one in parent.iterdir() if one.is_dir()]:
                child.rmdir()
            controllers.remove(parent)
            removed.append(str(parent))
    return removed


def _leftovers() -> Iterator[Path]:
    for hierarchy in dict.fromkeys(map(_hierarchy, _WORTH)):
        for place in hierarchy.places() if hierarchy else ():
            yield from [path for path in place.glob(f"{PREFIX}*") if controllers.is_left_over(path.name)]


def _hierarchy(controller: str) -> Hierarchy | None:
    return find(controller, read(Path("/proc/self/mountinfo")), read(Path("/proc/self/cgroup")))


_WORDS = {"memory": "memory", "cpu": "processor time"}  # users do not ask for a limit of processes: it is not missed
_WORTH = {"memory": 4, "cpu": 2, "pids": 1}


def _by_worth(controllers: Iterable[str]) -> list[frozenset[str]]:
    """Return all of them, then fewer and fewer, the most valuable first."""
    names = list(controllers)
    some = [frozenset(chosen) for count in range(1, len(names) + 1) for chosen in combinations(names, count)]
    return sorted(some, key=lambda chosen: -sum(_WORTH[name] for name in chosen))


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


def _process_files(count: int) -> dict[int, list[tuple[str, str]]]:
    return {version: [("pids.max", str(count))] for version in (1, 2)}


def memory_group(pid: int) -> Path | None:
    """Return the group that limits another process's memory, as far as it is visible from here."""
    found = find("memory", read(Path("/proc/self/mountinfo")), read(Path(f"/proc/{pid}/cgroup")))
    return found.own if found else None


def usage(group: Path) -> int:
    """Return the bytes of memory that a group's members use now."""
    return next((int(text) for file in ("memory.current", "memory.usage_in_bytes") if (text := read(group / file))), 0)


def kills(group: Path) -> int:
    """Return how many processes of a group the kernel has killed because the group was out of memory."""
    for file in ("memory.events", "memory.oom_control"):
        for line in read(group / file).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
