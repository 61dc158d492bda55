"""Cgroup version 2 controllers: enables them for a group's children, and undoes that. cgroups.py calls it.

What we enable in a group that is not ours is part of the name of the group that we make in it, so it can be disabled
again even after we have been killed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from testbed.network.state import start_time

PREFIX = "testbed-"
# What files hold in a group that has no setting of a controller.
_UNTOUCHED = {
    "memory": {"max": "max", "high": "max", "low": "0", "min": "0", "swap.max": "max"},
    "cpu": {"max": "max", "weight": "100"},
}


def new_group(place: Path, claims: Iterable[str] = ()) -> Path:
    """Return where to make a group: its name tells whose it is even after that process is gone and its id is reused.
    `claims`: what to disable around it once it is gone."""
    own = f"{PREFIX}{os.getpid()}-{start_time(os.getpid())}"
    for again in count():
        group = place / "+".join([f"{own}-{again}" if again else own, *sorted(claims)])
        if not group.exists():  # else of an earlier cell, whose processes take their time to end
            return group
    raise AssertionError


def is_left_over(name: str) -> bool:
    """Whether the process that made a group of this name is gone."""
    pid, _, rest = name.partition("+")[0].removeprefix(PREFIX).partition("-")
    return name.startswith(PREFIX) and pid.isdecimal() and str(start_time(int(pid))) != rest.partition("-")[0]


def claims_of(name: str) -> set[str]:
    """Return what to disable around a group of this name once it is gone."""
    return set(name.split("+")[1:]) & set(_UNTOUCHED) if name.startswith(PREFIX) else set()


def not_handed_on(place: Path, controllers: Sequence[str]) -> list[str]:
    """Return the controllers that a group could enable for its children and has not; raise where it cannot."""
    available = (place / "cgroup.controllers").read_text().split()
    for controller in controllers:
        if controller not in available:
            raise OSError(errno.ENODEV, f"the {controller} controller is not available", str(place))
    enabled = (place / "cgroup.subtree_control").read_text().split()
    return [controller for controller in controllers if controller not in enabled]


def claimed_in(place: Path) -> set[str]:
    """Return what active runs have enabled here. Another that needs it claims it, too: the last one disables it."""
    return {claim for child in place.glob(f"{PREFIX}*") for claim in claims_of(child.name)}


def hand_on(group: Path, controllers: Sequence[str]) -> None:
    """Enable all of them, or none and raise."""
    if not controllers:
        return
    try:
        write(group / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in controllers))
    except OSError as error:
        if error.errno == errno.EINVAL and "cpu" in controllers:  # our own box may be the real-time process
            error.strerror = "this kernel (RT_GROUP_SCHED) cannot limit it while a real-time process runs"
        raise


def remove(group: Path) -> None:
    """Remove an empty group of ours, and disable what was enabled for it unless something else uses that by now."""
    group.rmdir()
    for controller in claims_of(group.name):
        with suppress(OSError):  # EBUSY: a group below uses it
            if not _used(group.parent, controller):
                write(group.parent / "cgroup.subtree_control", f"-{controller}")


def _used(place: Path, controller: str) -> bool:
    """Whether children use it: the kernel protects only what they enable themselves, not their limits."""
    for child in (path for path in place.iterdir() if path.is_dir()):
        if controller in claims_of(child.name) or controller in read(child / "cgroup.subtree_control").split():
            return True
        for file, untouched in _UNTOUCHED[controller].items():
            if (read(child / f"{controller}.{file}").split() or [untouched])[0] != untouched:
                return True
    return False


def read(path: Path) -> str:
    """Return the content of a file; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


def write(path: Path, text: str, *, optional: bool = False) -> None:
    """Write in one piece, never creating a file that the kernel lacks. `optional`: kernels without swap lack it."""
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
