"""`testbed compressors`: a line for each, or all about one."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, fields
from typing import Any

from testbed.columns import aligned
from testbed.compressors.registry import COMPRESSORS, available, example


def lines() -> list[str]:
    """Name, options with defaults, bias, bytes per element of a ResNet-20 at those, paper."""
    from testbed.bench.compressors import resnet20

    layout = resnet20()
    rows = [("compressor", "options", "bias", "bytes/element", "paper")]
    for name, kind in available().items():
        options = " ".join(f"{o.name}={_default(o)}" for o in fields(kind)) or "-"
        size = f"{example(kind).bind(layout, seed=0).nbytes / layout.numel:.3g}"
        rows.append((name, options, kind.bias, size, kind.paper or "-"))
    return aligned(rows)


def about(name: str) -> list[str]:
    """What a compressor does, its wire format and when to change which option."""
    kind = COMPRESSORS.find(name)
    text = [f"{kind.name}: {inspect.getdoc(kind)}", ""]
    for o in fields(kind):
        text.append(f"{o.name} = {_default(o)}: {o.metadata.get('help', '')}")
    return [*text, f"Paper: {kind.paper}"] if kind.paper else text


def _default(o: Field[Any]) -> str:
    if o.default is MISSING:
        return "(required)"
    if o.default is None:
        return "none"
    return str(o.default).lower() if isinstance(o.default, bool) else str(o.default)
