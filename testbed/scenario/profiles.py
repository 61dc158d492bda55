"""Profiles: named sets of changes inside a scenario file, such as a small form of a large comparison. Loading calls it.

A profile's keys are those of --set; a section given as a mapping changes only the keys that it names. The scenario is
loaded as changed, so nothing later knows of profiles.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from testbed.errors import ScenarioError
from testbed.scenario.base import suggestion
from testbed.scenario.override import assign
from testbed.scenario.problems import Problem, error_of
from testbed.scenario.source import Keys, Source, as_keys
from testbed.scenario.units import shown

NAME = r"[a-z0-9][a-z0-9-]{0,19}"
LONGEST_NAME = 40  # of a scenario
_SECTIONS = (("workers",), ("network",), ("network", "link"), ("task",), ("training",))

Profiles = dict[str, dict[str, Any]]  # by name


def taken_out(data: Mapping[str, Any], source: Source) -> tuple[dict[str, Any], dict[str, Mapping[str, Any]]]:
    """Return the scenario without its profiles, and the profiles. ScenarioError where they are malformed."""
    rest = {key: value for key, value in data.items() if key != "profiles"}
    written = data.get("profiles") or {}
    problems = list(_problems(written))
    if problems:
        raise error_of(problems, source)
    return rest, {name: changes or {} for name, changes in written.items()}


def applied(
    data: Mapping[str, Any], profiles: Mapping[str, Mapping[str, Any]], name: str, source: Source
) -> tuple[dict[str, Any], Source]:
    """Return the scenario with a profile's changes, and where they are written. Its name ends with the profile's."""
    if name not in profiles:
        known = list(profiles)
        there = f"there are: {', '.join(known)}{suggestion(name, known)}" if known else "it has none"
        raise ScenarioError(f"{source.file}: no profile '{name}'; {there}")
    changed: Any = {**data, "name": f"{str(data['name'])[: LONGEST_NAME - len(name) - 1]}-{name}"}
    places = dict(source.overrides)
    for written, keys, value in _changes(("profiles", name), (), profiles[name]):
        where = source.where(written)
        changed = assign(changed, keys, value, where)
        inside = {at[len(written) :]: line for at, line in source.lines.items() if at[: len(written)] == written}
        places |= {(*keys, *rest): f"{source.file}:{line}" for rest, line in inside.items()}
    return changed, replace(source, overrides=places)


def _changes(written: Keys, keys: Keys, changes: Mapping[str, Any]) -> Iterator[tuple[Keys, Keys, Any]]:
    """Yield where each change is written, which key it changes, and to what."""
    for key, value in changes.items():
        here: tuple[Keys, Keys] = ((*written, key), (*keys, *as_keys(key)))
        if here[1] in _SECTIONS and isinstance(value, Mapping):
            yield from _changes(*here, value)
        else:
            yield (*here, value)


def _problems(written: Any) -> Iterator[Problem]:
    if not isinstance(written, Mapping):
        yield Problem(("profiles",), f"should be a mapping, e.g. small: {{training.steps: 60}}; not {shown(written)}")
        return
    for name, changes in written.items():
        at: Keys = ("profiles", name)
        if not re.fullmatch(NAME, name):
            yield Problem(at, "a profile's name has at most 20 small letters, digits and dashes")
        if not isinstance(changes, Mapping | None):
            yield Problem(at, f"should be a mapping of keys and values, e.g. training.steps: 60; not {shown(changes)}")
            continue
        for key in changes or {}:
            if key.split(".")[0] == "profiles" or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key):
                yield Problem((*at, key), "is no key of a scenario; write for example training.steps: 60")
