"""Methods by name: what scenarios, workers and the command line make them with. Adding one means adding a file."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from testbed import compressors
from testbed.columns import aligned
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


def show() -> None:
    """A line for each method."""
    rows = [("method", "form", "compressor", "overlap", "options", "paper")]
    for name, kind in available().items():
        options = " ".join(f"{option.name}={_shown(_default(option))}" for option in fields(kind))
        method = kind(**{o.name: o.metadata["example"] for o in fields(kind) if _default(o) is MISSING})
        compressed = any(option.name == "compressor" for option in fields(kind))
        marks = ("yes" if compressed else "no", "yes" if method.overlaps else "no")
        rows.append((name, kind.forms or method.form, *marks, options or "-", kind.paper))
    print("\n".join(aligned(rows)))


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _shown(default: Any) -> str:
    """As in a scenario."""
    if default is MISSING:
        return "…"
    return str(default).lower() if default is None or isinstance(default, bool) else str(default)
