"""Methods by name: what scenarios, workers and the command line make them with. Adding one means adding a file."""

from __future__ import annotations

from pathlib import Path

from testbed import compressors
from testbed.methods.base import Method
from testbed.registry import Registry

METHODS = Registry(
    "method",
    Method,  # type: ignore[type-abstract]  # the base is what all of them derive from
    "testbed.methods",
    contract="derive it from testbed.methods.Method and define form, init and step; see testbed/methods/base.py",
)


def make(spec: object, beside: Path | None = None) -> Method:
    """A method from a scenario's value: `dpsgd`, `{choco: {compressor: sign, gamma: 0.45}}`, `{mine.py:Mine: {…}}`.
    Files are looked for in the directory `beside` (the scenario's), then in the current one."""
    if isinstance(spec, Method):
        return spec
    name, options = METHODS.split(spec)
    kind = METHODS.find(name, beside)
    METHODS.check_options(name, kind, options)
    if options.get("compressor") is not None:
        options["compressor"] = compressors.make(options["compressor"], beside)
    return kind(**options)


def available() -> dict[str, type[Method]]:
    """All methods that have a plain name."""
    return METHODS.available()
