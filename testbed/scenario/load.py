"""Scenario files in and out: reads, overrides, validates, and reports all errors at once. The commands call it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from testbed.errors import ScenarioError
from testbed.scenario.base import suggestion
from testbed.scenario.bundled import located
from testbed.scenario.check import check
from testbed.scenario.model import Scenario, with_source
from testbed.scenario.override import assign
from testbed.scenario.problems import error_of, problems_of
from testbed.scenario.profiles import applied, taken_out
from testbed.scenario.read import MOST_BYTES, decode, plain_word, read
from testbed.scenario.source import Keys, Source, as_keys


def load(
    path: str | Path, sets: Sequence[str] = (), profile: str | None = None, *, directory: Path | None = None
) -> Scenario:
    """Return the scenario in a file, with one of its profiles and "key=value" overrides from the command line.
    ScenarioError says what is wrong. A name without ending may be that of a bundled scenario. `directory`: where the
    files that it names are; by default beside it."""
    file = located(path)
    return _scenario(decode(_content(file), str(file)), str(file), directory or file.parent, file.stem, sets, profile)


def loads(text: str, name: str = "scenario", sets: Sequence[str] = (), profile: str | None = None) -> Scenario:
    """Return the scenario in a text; `name` is the file in messages, and the scenario's name unless it has one."""
    return _scenario(text, name, Path(), Path(name).stem, sets, profile)


def dump(scenario: Scenario) -> str:
    """Return the scenario as YAML with every default spelt out; it loads back to an equal scenario."""
    return yaml.dump(
        as_data(scenario), Dumper=_Dumper, default_flow_style=None, sort_keys=False, allow_unicode=True, width=120
    )


def as_data(scenario: Scenario) -> dict[str, Any]:
    """Return the scenario as users would write it: plain data with every default spelt out."""
    data: dict[str, Any] = scenario.model_dump(mode="json", exclude_none=True)
    return data


def validate(data: Mapping[str, Any], source: Source) -> Scenario:
    """Return the scenario that plain data describes; ScenarioError lists all errors, with their lines."""
    try:
        scenario = with_source(Scenario.model_validate(data), source)
    except ValidationError as error:
        raise error_of(problems_of(error, Scenario, data), source) from None
    if problems := check(scenario):
        raise error_of(problems, source)
    return scenario


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(MOST_BYTES + 1)
    except FileNotFoundError:
        near = sorted(p.name for p in file.parent.glob("*.y*ml")) if file.parent.is_dir() else []
        raise ScenarioError(f"{file}: no such file{suggestion(file.name, near)}") from None
    except IsADirectoryError:
        raise ScenarioError(f"{file}: is a directory, not a scenario file") from None
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _scenario(text: str, file: str, directory: Path, stem: str, sets: Sequence[str], profile: str | None) -> Scenario:
    document = read(text, file)
    if document.data is None:
        raise ScenarioError(f"{file}: is empty; the shortest scenario is:\n  workers: 4\n  methods: [allreduce, dpsgd]")
    if not isinstance(document.data, dict):
        raise ScenarioError(f"{file}:1: a scenario is a mapping: keys and values such as workers: 4")
    source = Source(file, directory, document.lines)
    data, profiles = taken_out(document.data, source)
    data.setdefault("name", name_from(stem))
    if profile is not None:
        return _validated(*_with_sets(*applied(data, profiles, profile, source), sets))
    scenario = _validated(*_with_sets(data, source, sets))
    for name in profiles:  # what is wrong in one is said before anybody asks for it
        _validated(*applied(data, profiles, name, source))
    return scenario


def _with_sets(data: dict[str, Any], source: Source, sets: Sequence[str]) -> tuple[dict[str, Any], Source]:
    overrides = dict(source.overrides)
    for setting in sets:
        keys, value = _setting(setting)
        data = assign(data, keys, value, f"--set {setting}")
        overrides = {key: place for key, place in overrides.items() if key[: len(keys)] != keys}
        overrides[keys] = f"--set {setting}"
    return data, replace(source, overrides=overrides)


def _validated(data: Mapping[str, Any], source: Source) -> Scenario:
    """Return what `validate` does, with every combination of the sweep validated as well."""
    scenario = validate(data, source)
    if scenario.sweep:
        from testbed.scenario.sweep import variants  # sweep validates with this module

        variants(scenario)
    return scenario


def _setting(setting: str) -> tuple[Keys, Any]:
    """Parse "training.steps=20" into keys and value; the value is read as in the file."""
    key, equals, text = setting.partition("=")
    if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key.strip()):
        raise ScenarioError(f"--set {setting}: write key=value, for example --set training.steps=20")
    return as_keys(key.strip()), read(text, f"--set {setting}").data


def name_from(stem: str) -> str:
    """Make a scenario's name from its file's: small letters, digits, dashes, at most 40."""
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40].rstrip("-") or "scenario"


class _Dumper(yaml.SafeDumper):
    """Writes what testbed.scenario.read reads back: no aliases, quotes around text that looks like something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain_word(text) == text else '"')


_Dumper.add_representer(str, _text)
