"""`testbed compressors`: a line for each, or all about one."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, Field, fields
from typing import Any

import click

from testbed.columns import aligned
from testbed.compressors.registry import COMPRESSORS, available, example, make


def lines() -> list[str]:
    """Return name, options with defaults, bias, bytes per element of a ResNet-20 at those, and paper of each."""
    from testbed.bench.compressors import resnet20

    layout = resnet20()
    rows = [("compressor", "options", "bias", "bytes/element", "paper")]
    for name, kind in available().items():
        options = " ".join(f"{o.name}={default(o)}" for o in fields(kind)) or "-"
        size = f"{example(kind).bind(layout, seed=0).nbytes / layout.numel:.3g}"
        rows.append((name, options, kind.bias, size, kind.paper or "-"))
    return aligned(rows)


def about(name: str) -> list[str]:
    """Describe a compressor, its wire format and when to change which option."""
    kind = COMPRESSORS.find(name)
    text = [f"{kind.name}: {inspect.getdoc(kind)}", "", *described(kind)]
    return [*text, f"Paper: {kind.paper}"] if kind.paper else text


def checked(spec: object) -> tuple[list[str], bool]:
    """Return a compressor's size and error, and whether it keeps each promise that methods rely on."""
    from testbed.bench.compressors import resnet20
    from testbed.compressors.contract import lines as promises
    from testbed.methods.combinations import relative_error

    compressor, layout = make(spec), resnet20()
    found = list(promises(compressor))
    text = [f"{'ok    ' if kept else 'BROKEN'}  {words}" for kept, words in found]
    if all(kept for kept, _ in found):
        size, error = compressor.bind(layout, seed=0).nbytes / layout.numel, relative_error(compressor)
        bias = "unbiased" if compressor.unbiased else "biased"
        text.append(
            f"{compressor}: {bias}, {size:.3g} bytes per element of a ResNet-20, error {error:.2g} of a Gaussian"
        )
    return text, all(kept for kept, _ in found)


def described(kind: type[Any]) -> list[str]:
    """Describe the options of a compressor or method, one line each."""
    return [f"{option.name} = {default(option)}: {option.metadata.get('help', '')}" for option in fields(kind)]


def default(option: Field[Any]) -> str:
    """Return an option's default as a scenario would write it."""
    value = option.default if option.default_factory is MISSING else option.default_factory()
    if value is MISSING:
        return "(required)"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


@click.command("compressors")
@click.argument("name", required=False)
@click.option("--check", is_flag=True, help="Try out whether it does what methods rely on: for one of your own.")
def command(name: str | None, check: bool) -> None:
    """List the compressors, or tell all about one: NAME, file.py:Class or, to check, '{topk: 1%}'."""
    from testbed.worker.local import parsed

    if not (check and name):
        click.echo("\n".join(about(name) if name else lines()))
        return
    text, kept = checked(parsed("compressor", name))
    click.echo("\n".join(text))
    sys.exit(0 if kept else 2)
