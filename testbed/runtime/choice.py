"""Runtimes by the name that scenarios and the command line use."""

from __future__ import annotations

from testbed.runtime.base import Place, Runtime

NAMES = ("process", "docker")


def check(name: str) -> None:
    """Before anything is started: whether it can be had."""
    if name == "docker":
        from testbed.runtime import engine

        engine.check()


def make(name: str, place: Place) -> Runtime:
    if name == "docker":
        from testbed.runtime.docker import DockerRuntime

        return DockerRuntime(place)
    from testbed.runtime.process import ProcessRuntime

    return ProcessRuntime(place.run / "nursery.log")
