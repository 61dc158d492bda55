"""The scenarios that come with testbed, by name: `testbed up quickstart`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import testbed
from testbed.errors import ScenarioError
from testbed.scenario.base import suggestion

FOLDER = Path(testbed.__file__).parent / "scenarios"
NAME = re.compile(r"[\w-]{1,100}")  # of a scenario; errors in others are reported when the file is read


@dataclass(frozen=True)
class Bundled:
    """A bundled scenario."""

    name: str
    summary: str  # what it asks, the first sentence of its file
    file: Path


def bundled() -> list[Bundled]:
    """Return all of them, in order of their names."""
    return [Bundled(file.stem, _summary(file), file) for file in sorted(FOLDER.glob("*.yaml"))]


def located(path: str | Path) -> Path:
    """Return the file of that name or, where there is none, the bundled scenario of that name."""
    file = Path(path)
    if not NAME.fullmatch(str(file)) or file.exists():
        return file
    names = {one.stem: one for one in FOLDER.glob("*.yaml")}
    if file.name in names:
        return names[file.name]
    raise ScenarioError(
        f"there is no file {file}, and no scenario of that name{suggestion(file.name, sorted(names))}",
        hint="testbed scenarios lists those that come with testbed",
    )


def _summary(file: Path) -> str:
    """Return the first sentence of the comment that a scenario opens with."""
    words: list[str] = []
    for line in file.read_text().splitlines():
        text = line.removeprefix("#").strip()
        if not line.startswith("#") or (words and not text):
            break
        if text and not text.startswith("yaml-language-server"):
            words.append(text)
    sentence = " ".join(words).removeprefix("Asks: ")
    ends = [end for mark in (". ", "? ") if (end := sentence.find(mark)) >= 0]
    first = sentence[: min(ends) + 1] if ends else sentence
    return first[:1].upper() + first[1:]
