"""`testbed methods`: a line for each, or all about one."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, fields

import click

from testbed.columns import aligned
from testbed.commands.compressors import default, described
from testbed.methods.registry import METHODS, available


def lines() -> list[str]:
    """Return name, form, abilities, options with defaults, and paper of each."""
    rows = [("method", "form", "compressor", "overlap", "options", "paper")]
    for name, kind in available().items():
        options = " ".join(f"{option.name}={default(option)}" for option in fields(kind))
        required = [o for o in fields(kind) if o.default is MISSING and o.default_factory is MISSING]
        method = kind(**{option.name: option.metadata["example"] for option in required})
        compressed = any(option.name == "compressor" for option in fields(kind))
        marks = ("yes" if compressed else "no", "yes" if method.overlaps else "no")
        rows.append((name, kind.forms or method.form, *marks, options or "-", kind.paper))
    return aligned(rows)


def about(name: str) -> list[str]:
    """Describe a method, its equations, and when to change which option."""
    kind = METHODS.find(name)
    module = inspect.getdoc(sys.modules[kind.__module__]) or ""
    survives = "the others go on" if kind.survives else "its cells end"
    text = [f"{kind.name}: {inspect.getdoc(kind)}", "", module, ""]
    text += [*described(kind), f"When a worker dies (on_failure: continue): {survives}."]
    return [*text, f"Paper: {kind.paper}"] if kind.paper else text


@click.command("methods")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the training methods with their options and papers, or tell all about one."""
    click.echo("\n".join(about(name) if name else lines()))
