"""Runtimes by the name that scenarios and the command line use."""

from __future__ import annotations

from pathlib import Path

from testbed.errors import MissingError
from testbed.runtime.base import Runtime

NAMES = ("process", "docker")


def check(name: str) -> None:
    """Before anything is started: whether it can be had."""
    if name == "docker":
        raise MissingError(
            "the docker runtime is not available yet",
            hint="use --runtime process: each worker is a process with a network, limits and files of its own",
        )


def make(name: str, log: Path) -> Runtime:
    from testbed.runtime.process import ProcessRuntime

    check(name)
    return ProcessRuntime(log)
