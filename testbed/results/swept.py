"""What a run's cells have in common and what sets them apart: the swept values as text and as numbers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from testbed.scenario.named import brief
from testbed.scenario.sweep import short_names
from testbed.scenario.units import Duration, Rate, Share, Size, split

TEXT = "_text"  # what the column of a swept value as it was written ends with


def settings(sweep: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return swept key → value for every variant, by its number: the last key varies fastest."""
    return [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]


def columns(sweep: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return, for every variant, `latency_text` as written and `latency` in base units (seconds, bit/s, bytes, shares);
    the text again where a key's values are not all numbers."""
    names = short_names(list(sweep))
    numbers = {key: [number(value) for value in values] for key, values in sweep.items()}
    numeric = {key for key, found in numbers.items() if None not in found}
    return [
        {f"{names[key]}{TEXT}": brief(value) for key, value in setting.items()}
        | {names[key]: number(value) if key in numeric else brief(value) for key, value in setting.items()}
        for setting in settings(sweep)
    ]


def number(value: Any) -> float | None:
    """Convert to base units: "5ms" → 0.005, "10mbit" → 1e7, "8bit" → 8; unlimited is infinite. None: not a number."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    for kind in (Duration, Rate, Share, Size):
        try:
            found = kind.parse(value)
        except ValueError:
            continue
        return float("inf") if isinstance(found, Rate) and found.unlimited else float(found)
    parts = split(value)
    return float(parts[0]) if parts and parts[1] in ("", "bit", "bits") else None
