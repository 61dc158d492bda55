"""Where each key of a scenario was written, so that every later stage can name file and line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Keys = tuple[str | int, ...]


def as_keys(path: str | Keys) -> Keys:
    """Convert "network.links.1.rate" → ("network", "links", 1, "rate")."""
    if not isinstance(path, str):
        return path
    if path.startswith("sweep."):  # its keys are dotted themselves
        return ("sweep", path.removeprefix("sweep."))
    return tuple(int(part) if part.isdecimal() else part for part in path.split(".")) if path else ()


@dataclass(frozen=True)
class Source:
    """The places of a scenario's keys. All sources are equal: two scenarios that say the same are the same."""

    file: str = field(default="scenario", compare=False)
    directory: Path = field(default=Path(), compare=False)
    lines: Mapping[Keys, int] = field(default_factory=dict, compare=False)
    overrides: Mapping[Keys, str] = field(default_factory=dict, compare=False)  # keys that --set or a sweep gave

    def where(self, path: str | Keys) -> str:
        """Return "file.yaml:12" of a key, or of the nearest key around it that was written."""
        keys = self._known(as_keys(path))
        for end in range(len(keys), 0, -1):
            if keys[:end] in self.overrides:
                return self.overrides[keys[:end]]
        if keys and keys == as_keys(path) and keys not in self.lines:  # only on the way to something overridden
            return next(place for override, place in self.overrides.items() if override[: len(keys)] == keys)
        line = next((self.lines[keys[:end]] for end in range(len(keys), -1, -1) if keys[:end] in self.lines), None)
        return f"{self.file}:{line}" if line and keys else self.file

    def written(self) -> list[str]:
        """Return every key that the user gave, dotted: all others are defaults."""
        return sorted(".".join(map(str, keys)) for keys in self.lines.keys() | self.overrides.keys() if keys)

    def changes_below(self, path: Keys) -> list[str]:
        """Return what --set or a sweep changed inside a key that itself was written in the file."""
        inside = [place for keys, place in self.overrides.items() if keys[: len(path)] == path and keys != path]
        return inside if path in self.lines else []

    def _known(self, path: Keys) -> Keys:
        """Return the path without keys that a short form omits, such as `graph` in gossip.graph of `gossip: ring`."""
        written = set(self.lines) | {keys[:end] for keys in self.overrides for end in range(1, len(keys) + 1)}
        known: Keys = ()
        for key in path:
            if (*known, key) in written:
                known = (*known, key)
        return known
