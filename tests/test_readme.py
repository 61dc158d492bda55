"""The README's tables: the methods, compressors and keys that there are, with the sizes and defaults that they have."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from testbed import compressors, methods
from testbed.bench.compressors import resnet20
from testbed.commands.schema import SCHEMA, properties
from testbed.compressors.registry import example
from testbed.scenario.load import as_data, loads
from testbed.scenario.model import Scenario

README = Path(__file__).parents[1] / "README.md"
DEFAULTS = as_data(loads("workers: 4\nmethods: [dpsgd]"))


def table(first: str) -> list[list[str]]:
    """The cells of the table whose first column is called so."""
    lines = README.read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return rows
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_every_method_is_in_the_table():
    rows = {names(row[0])[0]: row for row in table("method")}
    assert sorted(rows) == list(methods.available())
    for name, kind in methods.available().items():
        takes = any(option.name == "compressor" for option in fields(kind))
        assert rows[name][2].startswith(("yes", "may")) == takes, name


def test_every_compressor_is_in_the_table_with_its_size():
    listed = {name: row for row in table("compressor") for name in names(row[0])}
    assert sorted(listed) == list(compressors.available())
    layout = resnet20()
    for name, kind in compressors.available().items():
        told = re.match(r"[\d.]+", listed[name][1])[0]
        size = example(kind).bind(layout, seed=0).nbytes / layout.numel
        decimals = len(told.partition(".")[2])
        assert f"{size:.{decimals}f}" == told, name
        assert kind.bias.split()[0] in listed[name][2] or name == "identity"


def schema_of(path: str) -> dict:
    found = properties(Scenario.__name__)
    for key in path.split("."):
        found = found["properties"][key]
        if "$ref" in found:
            name = found["$ref"].removeprefix("#/$defs/")
            found = properties(name) if name in SCHEMA["$defs"] and name not in ("Duration", "Rate", "Share") else found
    return found


def test_every_key_exists_and_has_that_default():
    rows = table("key")
    assert len(rows) > 20
    for row in rows:
        paths, defaults = names(row[0]), names(row[1])
        for path in paths:
            schema_of(path)
        for path, told in zip(paths, defaults, strict=False):
            value = DEFAULTS
            for key in path.split("."):
                value = value.get(key) if isinstance(value, dict) else None
            assert value is None or str(value) == told, f"{path}: {value}, not {told}"
