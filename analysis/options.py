"""What a method's options say about its compressor and step size, whichever way they were written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.results.swept import number

BITS = {"identity": 32.0, "fp16": 16.0, "bf16": 16.0, "sign": 1.0}  # of compressors without a choice
USUAL_BITS = {"quantize": 8.0, "qsgd": 8.0, "step": 8.0}  # of those with one


def compressor(options: Mapping[str, Any]) -> str | None:
    """Its name: of `sign`, {quantize: 4bit}, {topk: {fraction: 0.01}}."""
    given = options.get("compressor")
    if isinstance(given, Mapping):
        return str(next(iter(given), "")) or None
    return None if given is None else str(given)


def bits(options: Mapping[str, Any]) -> float | None:
    """Per number sent, where the compressor rounds each; None for sketches and selections."""
    name = compressor(options)
    if name in BITS:
        return BITS[name]
    if name not in USUAL_BITS:
        return None
    given = options["compressor"]
    value = given[name] if isinstance(given, Mapping) else None
    if isinstance(value, Mapping):
        value = value.get("bits")
    return USUAL_BITS[name] if value is None else number(value)


def gamma(options: Mapping[str, Any], decided: Mapping[str, float]) -> float | None:
    """The consensus step size: as given, or as the method chose it."""
    given = number(options.get("gamma"))
    return decided.get("gamma") if given is None else given
