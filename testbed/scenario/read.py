"""YAML as people mean it, with the line of every key. Loading calls it; it knows nothing of scenarios.

Built on PyYAML's parser alone. Plain words follow YAML 1.2: `no`, `on`, `1:30`, `010` stay the text they are, `1e3` is
a number. What could hide a mistake or harm the machine is refused: keys given twice, tags, deep or endless structures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from testbed.errors import ScenarioError
from testbed.scenario.source import Keys

MOST_BYTES = 1_000_000
MOST_NODES = 20_000  # with aliases expanded
MOST_DEPTH = 40

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})?(\.[0-9]{0,40})?([eE][-+]?[0-9]{1,2})?")
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}


@dataclass
class Document:
    """What a YAML text says, and on which line each key (or list entry) stands."""

    data: Any = None
    lines: dict[Keys, int] = field(default_factory=dict)


@dataclass
class _Node:
    line: int
    scalar: Any = None
    items: list[_Node] | None = None
    pairs: list[tuple[str, int, _Node]] | None = None


def decode(content: bytes, file: str) -> str:
    """Return the text of a file; ScenarioError where it is not text."""
    if len(content) > MOST_BYTES:
        raise ScenarioError(f"{file}: larger than {MOST_BYTES // 1000} kB; is this a scenario?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ScenarioError(f"{file}:{line}: not UTF-8 text; save the file as UTF-8") from None


def read(text: str, file: str) -> Document:
    """Parse YAML text; ScenarioError with file and line for anything that is wrong with it."""
    if len(text) > MOST_BYTES:
        raise ScenarioError(f"{file}: larger than {MOST_BYTES // 1000} kB; is this a scenario?")
    try:
        root = _Builder(text, file).document()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ScenarioError(f"{file}:{line}: character {_code(error.character)} is not allowed in YAML") from None
    except yaml.MarkedYAMLError as error:
        raise ScenarioError(_explain(error, text, file)) from None
    except (ValueError, OverflowError) as error:  # PyYAML on escapes such as "\UFFFFFFFF"
        raise ScenarioError(f"{file}: not valid YAML: {error}") from None
    document = Document()
    if root is not None:
        document.data = _Expansion(document.lines, file).plain(root, ())
    return document


class _Builder:
    """Events of PyYAML's parser → nodes. Aliases share the node of their anchor."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.events: Iterator[yaml.Event] = yaml.parse(text, Loader=yaml.SafeLoader)
        self.anchors: dict[str, _Node | None] = {}  # None: still being built
        self.nodes = 0

    def line(self, event: yaml.Event) -> int:
        return event.start_mark.line + 1 if event.start_mark else 1

    def fail(self, line: int, message: str) -> ScenarioError:
        return ScenarioError(f"{self.file}:{line}: {message}")

    def document(self) -> _Node | None:
        root = None
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.fail(self.line(event), "a second document begins here (---); a file holds one scenario")
            elif isinstance(event, yaml.NodeEvent):
                root = self.node(event, 0)
        return root

    def node(self, event: yaml.Event, depth: int) -> _Node:
        line = self.line(event)
        self.nodes += 1
        if self.nodes > MOST_NODES:
            raise self.fail(line, f"more than {MOST_NODES} values; is this a scenario?")
        if depth > MOST_DEPTH:
            raise self.fail(line, f"nested more than {MOST_DEPTH} levels deep")
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event.anchor or "", line)
        assert isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent)
        tag = event.tag
        if tag is not None and not (isinstance(event, yaml.ScalarEvent) and tag in ("!", "tag:yaml.org,2002:str")):
            raise self.fail(
                line, f"the tag {tag.replace('tag:yaml.org,2002:', '!!')} is not allowed here; leave it out"
            )
        if event.anchor is not None:
            self.anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            built = _Node(line, scalar=self.scalar(event, line))
        elif isinstance(event, yaml.SequenceStartEvent):
            built = _Node(line, items=self.sequence(depth))
        else:
            built = _Node(line, pairs=self.mapping(depth))
        if event.anchor is not None:
            self.anchors[event.anchor] = built
        return built

    def alias(self, name: str, line: int) -> _Node:
        if name not in self.anchors:
            raise self.fail(line, f"*{name} refers to nothing: there is no &{name} above")
        found = self.anchors[name]
        if found is None:
            raise self.fail(line, f"*{name} is used inside what it stands for")
        return _Node(line, found.scalar, found.items, found.pairs)

    def scalar(self, event: yaml.ScalarEvent, line: int) -> Any:
        text = event.value
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise self.fail(line, "half a character (a lone surrogate) in a text")
        return plain_word(text) if event.style is None and event.tag is None else text

    def sequence(self, depth: int) -> list[_Node]:
        items = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, depth + 1))
        return items

    def mapping(self, depth: int) -> list[tuple[str, int, _Node]]:
        pairs: list[tuple[str, int, _Node]] = []
        seen: dict[str, int] = {}
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            line = self.line(event)
            if not isinstance(event, yaml.ScalarEvent):
                raise self.fail(line, "a key must be a word, not a list, a mapping or an alias")
            self.node(event, depth + 1)  # for its checks
            key = event.value
            if key in seen and key != "<<":
                raise self.fail(line, f"'{key}' is given twice, here and in line {seen[key]}")
            seen[key] = line
            pairs.append((key, line, self.node(next(self.events), depth + 1)))
        return pairs


def plain_word(text: str) -> Any:
    """Return what a word without quotes means."""
    if text in _WORDS or text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    mantissa, exponent, _ = text.lower().partition("e")
    if _FLOAT.fullmatch(text) and (exponent or "." in text) and any(map(str.isdigit, mantissa)):
        return float(text)
    return text


class _Expansion:
    """Nodes → plain data with the line of each key; counts what aliases multiply."""

    def __init__(self, lines: dict[Keys, int], file: str) -> None:
        self.lines = lines
        self.file = file
        self.nodes = 0

    def plain(self, node: _Node, keys: Keys) -> Any:
        self.count(node, len(keys))
        self.lines.setdefault(keys, node.line)
        if node.items is not None:
            return [self.plain(item, (*keys, number)) for number, item in enumerate(node.items)]
        if node.pairs is None:
            return node.scalar
        mapping: dict[str, Any] = {}
        for key, line, value in self.entries(node):
            if key not in mapping:
                self.lines[(*keys, key)] = line
                mapping[key] = self.plain(value, (*keys, key))
        return mapping

    def entries(self, node: _Node, depth: int = 0) -> Iterator[tuple[str, int, _Node]]:
        """Yield the node's own pairs, then what `<<` merges in: own keys win."""
        own = node.pairs or []
        yield from (pair for pair in own if pair[0] != "<<")
        for _, line, value in (pair for pair in own if pair[0] == "<<"):
            for merged in value.items if value.items is not None else [value]:
                self.count(merged, depth)
                if merged.pairs is None:
                    raise ScenarioError(f"{self.file}:{line}: << merges a mapping, for example <<: *slow")
                yield from self.entries(merged, depth + 1)

    def count(self, node: _Node, depth: int) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES or depth > MOST_DEPTH:
            raise ScenarioError(
                f"{self.file}:{node.line}: with aliases, more than {MOST_NODES} values or {MOST_DEPTH} levels"
            )


def _code(character: object) -> str:
    return f"U+{character if isinstance(character, int) else ord(str(character)):04X}"


def _explain(error: yaml.MarkedYAMLError, text: str, file: str) -> str:
    """Return PyYAML's words, or better ones for the usual mistakes."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    problem = error.problem or "something is wrong here"
    lines = text.splitlines()
    written = lines[line - 1] if line <= len(lines) else ""
    if "\\t" in problem:
        problem = "a tab; indent with spaces"
    elif "could not find expected ':'" in problem or "mapping values are not allowed here" in problem:
        problem += "; is a space missing after a colon, or is the indentation off?"
    elif "expected ',' or '}'" in problem or "expected ',' or ']'" in problem:
        opened = f" (the bracket opened in line {error.context_mark.line + 1})" if error.context_mark else ""
        problem = f"a comma or a closing bracket is missing{opened}"
    elif problem.startswith("expected <block end>"):
        problem = "the indentation does not fit the lines above"
    elif "cannot start any token" in problem:
        problem += f"; put the text in quotes: {written.strip()[:40]}"
    return f"{file}:{line}: not valid YAML: {problem}"
