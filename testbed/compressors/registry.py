"""Compressors by name, made from what a scenario says. Scenarios, methods and the command line call it.

Adding a compressor means adding a file to this package, an entry point of the group `testbed.compressors`, or a file of
one's own that a scenario names as `module:Class` or `path/to/file.py:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from testbed.compressors.base import Compressor
from testbed.errors import ScenarioError
from testbed.registry import Registry

COMPRESSORS = Registry(
    "compressor",
    Compressor,  # type: ignore[type-abstract]  # the base is what all of them derive from
    "testbed.compressors",
    contract="derive it from testbed.compressors.Compressor and define bind; see testbed/compressors/base.py",
)


def make(spec: object, beside: Path | None = None) -> Compressor:
    """A compressor from a scenario's value: `sign`, `{quantize: 8bit}`, `{topk: {fraction: 1%, values: fp16}}`,
    `{mine.py:Mine: {…}}`. Files are looked for in the directory `beside` (the scenario's), then in the current one."""
    if isinstance(spec, Compressor):
        return spec
    if isinstance(spec, str):
        name, given = spec, None
    elif isinstance(spec, Mapping) and len(spec) == 1:
        ((name, given),) = spec.items()
    else:
        raise ScenarioError(
            f"compressor: {spec!r} is neither a name nor one name with its options",
            hint="write for example sign, {quantize: 8bit} or {topk: {fraction: 1%, values: fp16}}",
        )
    kind = COMPRESSORS.find(str(name), beside)
    options = _options(kind, given)
    COMPRESSORS.check_options(kind.name, kind, options)
    for required in fields(kind):
        if required.name not in options and required.default is MISSING and required.default_factory is MISSING:
            raise ScenarioError(
                f"compressor {kind.name}: {required.name} must be given", hint=required.metadata.get("help")
            )
    return kind(**options)


def available() -> dict[str, type[Compressor]]:
    """All compressors that have a plain name."""
    return COMPRESSORS.available()


def example(kind: type[Compressor]) -> Compressor:
    """The compressor with its defaults, and example values for options that have none."""
    return kind(**{o.name: o.metadata["example"] for o in fields(kind) if o.default is MISSING})


def _options(kind: type[Compressor], given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {str(key): value for key, value in given.items()}
    if kind.short:
        return {kind.short: given}
    raise ScenarioError(
        f"compressor {kind.name}: takes no single value, got {given!r}",
        hint=f"write {kind.name}, or name the option: {{{kind.name}: {{option: value}}}}",
    )
