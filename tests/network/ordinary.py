"""Become an ordinary user for a command, although root runs the tests from a place that only root can read.

Only the command's own mount namespace changes: there, what the interpreter needs is visible where it always is.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import testbed
from testbed.network import namespaces

NOBODY = 65534
FOR_EVERYBODY = 0o005  # may be listed and passed


def become(user: int = NOBODY) -> None:
    """Give up root's rights for good, in a private view of the file system. Called between fork and exec."""
    namespaces.unshare(namespaces.CLONE_NEWNS)
    namespaces.mount("none", "/", flags=namespaces.MS_REC | namespaces.MS_PRIVATE)
    _open(_needed())
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _needed() -> list[Path]:
    """The interpreter, its libraries, our own package."""
    package = Path(testbed.__file__).resolve().parent.parent
    places = [Path(sys.prefix), Path(sys.base_prefix), Path(os.path.realpath(sys.executable)).parent.parent, package]
    return sorted({place.resolve() for place in places})


def _open(places: list[Path]) -> None:
    """Put places below a directory that others may not enter back where they are, below an empty one that they may."""
    closed: dict[Path, dict[Path, int]] = {}
    for place in places:
        barred = [
            one for one in (*reversed(place.parents), place) if one.stat().st_mode & FOR_EVERYBODY != FOR_EVERYBODY
        ]
        if barred:
            closed.setdefault(barred[0], {})[place] = os.open(place, os.O_PATH)
    for directory, inside in closed.items():
        namespaces.mount("tmpfs", str(directory), "tmpfs", data="mode=755")
        for place, fd in inside.items():
            place.mkdir(parents=True, exist_ok=True)
            namespaces.mount(f"/proc/self/fd/{fd}", str(place), flags=namespaces.MS_BIND | namespaces.MS_REC)
            os.close(fd)
