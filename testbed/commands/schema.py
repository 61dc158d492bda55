"""docs/scenario.md: every key of a scenario, its values and default, and when to change it. `testbed schema --markdown`
prints it from the models and registries; a test compares, so it cannot go stale.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from textwrap import fill
from typing import Any

import click

from testbed.scenario.chapters import CHAPTERS, Chapter, Table
from testbed.scenario.links import Link, LinkOptions
from testbed.scenario.schema import json_schema
from testbed.scenario.schema import text as schema_text
from testbed.scenario.units import Duration, Quantity, Rate, Share, Size

UNITS: Mapping[str, tuple[type[Quantity], str, str]] = {  # by the name of the definition in the schema
    "Duration": (Duration, "duration", "a time"),
    "Rate": (Rate, "rate", "bits per second, 1kbit to 34gbit; `unlimited` is as fast as the machine goes"),
    "Size": (Size, "size", "bytes; `kb`, `mb`, `gb` are powers of 1000, `kib`, `mib`, `gib` of 1024"),
    "Share": (Share, "share", "a part of the whole; 0.001 is `0.1%`"),
}
ELSEWHERE = {  # definitions that have no table of their own
    "MethodChoice": "methods",
    "ModelChoice": "task",
    "LinkOptions": "network.link",
    "GossipGraph": "network.topology",
}
BY_EXAMPLE = ("Jitter",)  # definitions of which the examples say enough beside the key's description
SCHEMA = json_schema()
WIDTH = 120
HEAD = """\
# Scenario reference

Every key of a scenario, from the most to the least needed. `testbed schema --markdown` prints this page from what
checks scenarios, so it is never out of date. Editors show the same words where a file begins with
`# yaml-language-server: $schema=scenario.schema.json`.

Any key can be changed from the command line by its path: `--set network.link.latency=80ms`, `--set methods.1=dpsgd`."""


def text() -> str:
    """Return the page."""
    contents = " · ".join(f"[{chapter.title}](#{anchor(chapter.title)})" for chapter in CHAPTERS)
    blocks = [HEAD, fill(contents, WIDTH, break_on_hyphens=False), *_chapter(CHAPTERS[0]), *_units()]
    for chapter in CHAPTERS[1:]:
        blocks += _chapter(chapter)
    return "\n\n".join(blocks) + "\n"


def anchor(title: str) -> str:
    """Return the anchor by which links name a heading."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _chapter(chapter: Chapter) -> Iterator[str]:
    yield f"## {chapter.title}"
    yield fill(chapter.text, WIDTH)
    yield f"```yaml\n{chapter.example}\n```"
    if chapter.forms:
        yield "Other forms, one a line:"
        yield "```yaml\n" + "\n".join(chapter.forms) + "\n```"
    for table in chapter.tables:
        if table.title:
            yield f"{table.title}:"
        yield _table(table)
    if chapter.inventory:
        yield _inventory(chapter.inventory)


def _units() -> Iterator[str]:
    yield "## Units"
    yield "Numbers with a unit, in small or capital letters, with or without a space; 0 needs none."
    rows = []
    for kind, name, about in UNITS.values():
        units = ", ".join(f"`{unit}`" for unit in kind.units if "/" not in unit)
        rows.append((name, about, units, ", ".join(f"`{one}`" for one in kind.examples)))
    yield grid(("value", "stands for", "units", "for example"), rows)


def properties(name: str) -> dict[str, Any]:
    """Return the keys of a model in the JSON schema."""
    schema = SCHEMA if name == "Scenario" else SCHEMA["$defs"][name]
    found: dict[str, Any] = next(part for part in (schema, *schema.get("anyOf", ())) if "properties" in part)
    return found


def _table(table: Table) -> str:
    found = properties(table.model.__name__)
    known = found["properties"]
    shared = [] if table.model is Link or not issubclass(table.model, LinkOptions) else list(LinkOptions.model_fields)
    rows = []
    for key in table.keys or [key for key in known if key not in shared]:
        about, default = _described(known[key])
        if key in found.get("required", ()):
            default = "must be given"
        rows.append((f"`{key}`", _values(known[key]), default, about))
    if shared and not table.keys:
        rows.append((", ".join(f"`{key}`" for key in shared), "", "as before", _see("network.link")))
    if table.one_of:
        return grid(("choice", "value", "what it is"), [(key, value, about) for key, value, _, about in rows])
    return grid(("key", "value", "default", "what it is, when to change it"), rows)


def _described(schema: dict[str, Any]) -> tuple[str, str]:
    """Return what a key is, and its default: as the description says, else the model's own."""
    about, _, said = _with_code(schema.get("description", "")).partition("Default: ")
    if said:
        return about.strip(), said.rstrip(".")
    return about, f"`{_yaml(schema['default'])}`" if "default" in schema else ""


def _with_code(words: str) -> str:
    """Set mappings and lists in a description as code: {torus: 4x4}."""
    made, depth = "", 0
    for part in re.split(r"(`[^`]*`|[][{}])", words):
        opens, closes = part in ("[", "{"), part in ("]", "}")
        made += ("`" if opens and not depth else "") + part + ("`" if closes and depth == 1 else "")
        depth += opens - closes
    return made


def _yaml(value: Any) -> str:
    """Return a value as a scenario writes it, in one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_yaml(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _values(schema: dict[str, Any]) -> str:
    """Return what may be written, in few words."""
    if "$ref" in schema:
        return _reference(schema["$ref"].removeprefix("#/$defs/"))
    if listed := schema.get("examples") or schema.get("enum"):
        return ", ".join(f"`{_yaml(value)}`" for value in listed)
    if "const" in schema:
        return f"`{schema['const']}`"
    if alternatives := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(_values(one) for one in alternatives))
    match schema.get("type"):
        case "array":
            items = _values(schema["items"])
            return f"list, {items}" if items.startswith("see ") else f"list of {items}"
        case "object":
            others = schema.get("additionalProperties")
            return f"mapping to {_values(others)}" if isinstance(others, dict) else "mapping"
        case "integer" | "number" as kind:
            return ("whole number" if kind == "integer" else "number") + _bounds(schema)
        case "boolean":
            return "`true`, `false`"
        case "string":
            return "text"
    return "anything"


def _bounds(schema: dict[str, Any]) -> str:
    words = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}", "exclusiveMaximum": "below {}"}
    said = [word.format(f"{schema[key]:g}") for key, word in words.items() if key in schema and schema[key] < 10**9]
    return " " + " ".join(said) if said else ""


def _reference(name: str) -> str:
    if name in UNITS:
        return f"[{UNITS[name][1]}](#units)"
    if name == "Nothing":
        return ""
    if name in ELSEWHERE:
        return _see(ELSEWHERE[name])
    if name in BY_EXAMPLE:
        return _values(SCHEMA["$defs"][name])
    home = next(c for c in CHAPTERS for table in c.tables if table.model.__name__ == name)
    if home.tables[0].model.__name__ == name:
        return _see(home.title)
    definition = SCHEMA["$defs"][name]
    return " or ".join(_form(one) for one in definition.get("anyOf", [definition]))


def _form(schema: dict[str, Any]) -> str:
    """Return one way to write a model: a mapping by its keys, anything else by its values."""
    if "properties" not in schema:
        return _values(schema)
    chosen = [f"{key}: …" for key, value in schema["properties"].items() if _values(value)]
    return " or ".join(f"`{{{key}}}`" for key in chosen) if "maxProperties" in schema else f"`{{{', '.join(chosen)}}}`"


def _see(title: str) -> str:
    return f"see [{title}](#{anchor(title)})"


def _inventory(what: str) -> str:
    return {"methods": _methods, "compressors": _compressors, "models": _models}[what]()


def _methods() -> str:
    from testbed.methods import available

    return _options("method", available())


def _compressors() -> str:
    from testbed.compressors import available

    return _options("compressor", available())


def _options(what: str, kinds: Mapping[str, type[Any]]) -> str:
    """Return a row for each of them, and one for each of its options."""
    from testbed.commands.compressors import default

    rows = []
    for name, kind in kinds.items():
        rows.append((f"**`{name}`**", "", "", first_paragraph(kind)))
        for option in fields(kind):
            value = _compressor(option) or default(option)
            shown = "must be given" if value == "(required)" else f"`{value}`"
            rows.append(("", f"`{option.name}`", shown, option.metadata["help"]))
    return grid((what, "option", "default", "what it is, when to change it"), rows)


def _compressor(option: Field[Any]) -> str:
    """Return a default compressor as a scenario writes it."""
    if option.default_factory is MISSING:
        return ""
    made = option.default_factory()
    return f"{{{made.name}: {getattr(made, made.short)}}}" if made.short else str(made.name)


def _models() -> str:
    from testbed.tasks.spec import MODELS, WITHOUT_DATA

    rows = []
    for name, kind in MODELS.items():
        options = ", ".join(f"{option.name}: {_yaml(option.default)}" for option in fields(kind))
        data = "its own" if name in WITHOUT_DATA else kind.data
        rows.append((f"`{name}`", f"`{options}`" if options else "none", data, first_paragraph(kind)))
    return "Models:\n\n" + grid(("model", "options and their defaults", "usual data", "what it is"), rows)


def first_paragraph(kind: type[Any]) -> str:
    """Return the first paragraph of its documentation, in one line."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split()).rstrip(".:") + "."


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


@click.command("schema")
@click.option("--markdown", is_flag=True, help="As a page for people: docs/scenario.md.")
def command(markdown: bool) -> None:
    """Print the JSON schema of scenario files: editors complete and check with it."""
    click.echo(text() if markdown else schema_text(), nl=False)
