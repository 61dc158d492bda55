"""`testbed compressors`: a line for each, or all about one."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, Field, fields
from typing import Any

from testbed.columns import aligned
from testbed.compressors.registry import COMPRESSORS, available, example, make


def lines() -> list[str]:
    """Name, options with defaults, bias, bytes per element of a ResNet-20 at those, paper."""
    from testbed.bench.compressors import resnet20

    layout = resnet20()
    rows = [("compressor", "options", "bias", "bytes/element", "paper")]
    for name, kind in available().items():
        options = " ".join(f"{o.name}={default(o)}" for o in fields(kind)) or "-"
        size = f"{example(kind).bind(layout, seed=0).nbytes / layout.numel:.3g}"
        rows.append((name, options, kind.bias, size, kind.paper or "-"))
    return aligned(rows)


def about(name: str) -> list[str]:
    """What a compressor does, its wire format and when to change which option."""
    kind = COMPRESSORS.find(name)
    text = [f"{kind.name}: {inspect.getdoc(kind)}", "", *described(kind)]
    return [*text, f"Paper: {kind.paper}"] if kind.paper else text


def checked(spec: object) -> tuple[list[str], bool]:
    """A compressor's size and error, and whether it keeps each promise that methods rely on."""
    from testbed.bench.compressors import resnet20
    from testbed.compressors.promises import lines as promises
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
    """The options of a compressor or method, one line each."""
    return [f"{option.name} = {default(option)}: {option.metadata.get('help', '')}" for option in fields(kind)]


def default(option: Field[Any]) -> str:
    """An option's default as a scenario would say it."""
    value = option.default if option.default_factory is MISSING else option.default_factory()
    if value is MISSING:
        return "(required)"
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
