"""A scenario with a sweep → the scenarios it stands for: all combinations, in order. Pure; the plan calls it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

from testbed.errors import ScenarioError
from testbed.scenario.load import as_data, validate
from testbed.scenario.model import Scenario
from testbed.scenario.named import brief
from testbed.scenario.override import assign
from testbed.scenario.problems import Problem, error_of, joined
from testbed.scenario.source import Keys, as_keys

MOST_VARIANTS = 1000


@dataclass(frozen=True)
class Variant:
    """One point of the sweep."""

    label: str  # "latency=5ms rate=100mbit"; "" without a sweep
    settings: Mapping[str, Any]  # swept key → value as written
    scenario: Scenario  # validated, without a sweep


def variants(scenario: Scenario) -> tuple[Variant, ...]:
    """Return every combination of the swept values; the last key varies fastest. ScenarioError names wrong values."""
    sweep = scenario.sweep
    number = prod(len(values) for values in sweep.values())
    if number > MOST_VARIANTS:
        raise error_of([Problem(("sweep",), f"{number} combinations; at most {MOST_VARIANTS}")], scenario.source)
    base = {key: value for key, value in as_data(scenario).items() if key != "sweep"}
    names = short_names(list(sweep))
    made: list[Variant] = []
    errors: list[str] = []
    for choice in product(*(enumerate(values) for values in sweep.values())):
        chosen = dict(zip(sweep, choice, strict=True))
        try:
            varied = _varied(scenario, base, chosen)
        except ScenarioError as error:
            errors += error.problems or (str(error),)
            continue
        label = " ".join(f"{names[key]}={brief(value)}" for key, (_, value) in chosen.items())
        made.append(Variant(label, {key: value for key, (_, value) in chosen.items()}, varied))
    if errors:
        raise joined(errors, scenario.source.file)
    return tuple(made)


def _varied(scenario: Scenario, base: Mapping[str, Any], chosen: Mapping[str, tuple[int, Any]]) -> Scenario:
    """Return the scenario with one choice (place in the list, value) for each key."""
    data: Any = dict(base)
    overrides: dict[Keys, str] = dict(scenario.source.overrides)
    for key, (place, value) in chosen.items():
        written = scenario.where(("sweep", key, place))
        data = assign(data, as_keys(key), value, written)
        overrides[as_keys(key)] = written
    return validate(data, replace(scenario.source, overrides=overrides))


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Return the shortest ends of dotted keys that distinguish them: latency, or link.latency where two end so."""
    names: dict[str, str] = {}
    for key in keys:
        parts = key.split(".")
        starts = (start for start in range(len(parts) - 1, -1, -1) if not parts[start].isdecimal())
        ends = [".".join(parts[start:]) for start in starts]
        names[key] = next(
            (end for end in ends if sum(other == end or other.endswith("." + end) for other in keys) == 1), key
        )
    return names
