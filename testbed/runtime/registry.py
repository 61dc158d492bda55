"""Runtimes by the name that scenarios and the command line use. A new runtime is a file and a row here."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.runtime.base import Place, Runtime

RUNTIMES = {  # module and class, loaded when asked for: most runs need no Docker
    "process": ("testbed.runtime.process", "ProcessRuntime"),
    "docker": ("testbed.runtime.docker", "DockerRuntime"),
}
NAMES = tuple(RUNTIMES)


def check(name: str) -> None:
    """Check, before anything is started, that the runtime can be used."""
    _find(name).check()


def make(name: str, place: Place) -> Runtime:
    return _find(name)(place)


def _find(name: str) -> type[Runtime]:
    module, kind = RUNTIMES[name]
    found: type[Runtime] = getattr(import_module(module), kind)
    return found
