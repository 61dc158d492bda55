"""Tests what worker processes are prevented from on this machine, in a short-lived process confined as they are.
`testbed doctor` calls it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import testbed
from testbed.network.probe import try_in_child
from testbed.network.state import base
from testbed.runtime import landlock
from testbed.runtime.checks import Finding
from testbed.runtime.confine import USER, Needs, confine
from testbed.runtime.needs import python_paths
from testbed.runtime.pidspace import PidSpaces

NEEDED_FOR = "workers that run code of others"
REMEDY = "run as root, on Linux 5.13 or newer; runtime: docker isolates workers in containers"


def finding() -> Finding:
    """Return what holds here and, in the same words as in the results of a run, what does not."""
    with tempfile.TemporaryDirectory(prefix="testbed-", ignore_cleanup_errors=True) as folder:
        if os.geteuid() == 0:
            os.chown(folder, USER, USER)
        os.chmod(folder, 0o755)  # as the directory of a cell
        answer = try_in_child(lambda: json.dumps(_shortcomings(Path(folder))))
    try:
        lacking = [str(one) for one in json.loads(answer or "")]
    except ValueError:  # no namespace, of which another finding tells more
        lacking = [answer or "it could not be tried"]
    return describe(lacking, landlock.version())


def describe(lacking: list[str], version: int) -> Finding:
    """Describe the confinement. `version`: of Landlock."""
    if not lacking:
        found = f"own process ids, user nobody, no capabilities, seccomp, Landlock {version}"
    else:
        found = f"Landlock {version or 'missing'}; not kept here: {'; '.join(lacking)}"
    return Finding("confined workers", not lacking, found, REMEDY, NEEDED_FOR)


def _shortcomings(writable: Path) -> list[str]:
    """Return the shortcomings of a process like a worker, in a network namespace of our own."""
    spaces = PidSpaces()
    reading, writing = os.pipe()
    with spaces() as around:
        child = os.fork()
        if child == 0:
            _confined(writable, writing, own_processes=not spaces.shortcoming)
    os.close(writing)
    with os.fdopen(reading) as stream:
        told = stream.read()
    os.waitpid(child, 0)
    around.close()
    found = [str(one) for one in json.loads(told)] if told else ["a worker could not be confined at all"]
    return [spaces.shortcoming, *found] if spaces.shortcoming else found


def _confined(writable: Path, answer: int, *, own_processes: bool) -> None:
    try:
        files = tuple(Path(str(one.__file__)) for one in (os, testbed))
        needs = Needs(tuple(python_paths(sys.path)), files, own_processes=own_processes)
        os.write(answer, json.dumps(confine(writable, base(), needs)).encode())
    finally:
        os._exit(0)
