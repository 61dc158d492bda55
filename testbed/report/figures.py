"""A report's figures: those of `analysis/` that the run has data for, in the catalogue's order."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import StorageError

if TYPE_CHECKING:
    from testbed.results.run import Run

SUFFIXES = (".pdf", ".png")
LEFT_OUT = (
    "timeline",  # the page has one of every method, over the same time
    "epoch_time_vs_bandwidth",  # step_time_vs_bandwidth on another scale
)


@dataclass(frozen=True)
class Drawn:
    """A figure on the page."""

    name: str
    title: str
    caption: str
    svg: str
    files: tuple[str, ...]
    wide: bool

    @property
    def alt(self) -> str:
        return f"{self.title}: {self.caption} The numbers are in the comparison table."


def draw_all(run: Run, say: Callable[[str], None], options: Mapping[str, Mapping[str, Any]]) -> list[Drawn]:
    """Draw what the run has data for, also as files in figures/. What cannot be drawn is reported and left out.
    `options`: of figures that have some, by name."""
    from testbed.analysis import catalogue, reading

    found = []
    for name in catalogue.FIGURES:
        if name in LEFT_OUT:
            continue
        try:
            found.append(_drawn(run, name, run.path / "figures", options.get(name, {})))
        except reading.LackingError:  # the run has nothing of the kind
            continue
        except Exception as error:  # one figure must not cost the report
            if isinstance(error, OSError) and error.errno in (*StorageError.full, errno.EROFS, errno.EACCES):
                raise  # where no figure can be written the report cannot be, either
            say(f"the figure {name} could not be drawn: {type(error).__name__}: {error}")
    return found


def _drawn(run: Run, name: str, folder: Path, options: Mapping[str, Any]) -> Drawn:
    from testbed.analysis import catalogue, style

    made = catalogue.module(name).draw(run, **options)
    folder.mkdir(exist_ok=True)
    files = tuple(f"{name}{suffix}" for suffix in SUFFIXES)
    for file in files:
        style.save(made, folder / file)
    title, _, caption = catalogue.caption(name).partition(": ")
    wide = made.get_figwidth() > style.WIDE
    return Drawn(name, title.rstrip("."), caption[:1].upper() + caption[1:], style.svg(made, name), files, wide)
