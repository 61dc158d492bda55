"""What networks could leave behind on this machine, as a set to compare before and after."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 10.0  # seconds; the kernel takes namespaces apart in its own time


@dataclass(frozen=True)
class Traces:
    """Everything that a network is made of."""

    namespaces: frozenset[int]  # inodes of network namespaces that a process is in or holds open
    interfaces: frozenset[str]  # of the namespace that we are in
    processes: frozenset[tuple[int, str]]  # of ours, by what they were started with
    mounts: frozenset[str]
    files: frozenset[str]  # below the state directory

    def __sub__(self, other: Traces) -> dict[str, list[object]]:
        """What is here and not there, by kind; empty: nothing."""
        left = {name: sorted(value - getattr(other, name)) for name, value in vars(self).items()}
        return {name: found for name, found in left.items() if found}


def traces(state: Path) -> Traces:
    return Traces(
        frozenset(_namespaces(state)),
        frozenset(name for _, name in socket.if_nameindex()),
        frozenset(_processes(state)),
        frozenset(_mounts(state)),
        frozenset(str(path) for path in state.rglob("*")),
    )


def _own(state: Path) -> set[int]:
    """Our descendants and whatever has the state directory in its arguments; other tests and users do not count."""
    found = set()
    parents = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes()
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] in "ZX":
            continue
        parents[int(entry.name)] = int(fields[1])
        if os.fsencode(state) in words:
            found.add(int(entry.name))
    for pid in parents:
        line, one = [pid], pid
        while (one := parents.get(one, 0)) > 1:
            line.append(one)
            if one == os.getpid() or one in found:
                found.update(line[:-1])
                break
    return found - {os.getpid()}


def _processes(state: Path) -> list[tuple[int, str]]:
    found = []
    for pid in _own(state):
        try:
            found.append((pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")))
        except OSError:  # it ended meanwhile
            continue
    return found


def _namespaces(state: Path) -> list[int]:
    found = []
    for pid in [os.getpid(), *_own(state)]:
        for path in (Path(f"/proc/{pid}/ns/net"), *_descriptors(pid)):
            try:
                if os.readlink(path).startswith("net:"):
                    found.append(path.stat().st_ino)
            except OSError:
                continue
    return found


def _descriptors(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return []


def _mounts(state: Path) -> list[str]:
    """Namespaces that have a name, and whatever lies in the state directory; a Docker engine's come and go."""
    every = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in every if str(state) in line or (" - nsfs " in line and "/docker/" not in line)]


def left_behind(before: Traces, state: Path, besides: str = "") -> dict[str, list[object]]:
    """What is more than before, once the kernel has had its time."""
    deadline = time.monotonic() + PATIENCE
    while True:
        left = traces(state) - before
        left.pop(besides, None)
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)
