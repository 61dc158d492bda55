"""Consoles for tables and live views. Whatever prints with rich gets its console here."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from testbed.output import printable

PIPED_WIDTH = 150  # columns where nobody's terminal limits them


class SafeConsole(Console):
    """A console that obeys only what was meant for it: styles and the cursor's moves, not what is in the text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def console_for_people() -> Console:
    """As wide as the terminal, or wide enough where there is none."""
    console = SafeConsole()
    return console if console.is_terminal else SafeConsole(width=PIPED_WIDTH)
