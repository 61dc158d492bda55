"""Names at the ends of lines instead of a legend, moved apart where they would overlap. Figures with lines call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Annotation

from .style import INK, LINE, SMALL, plain

GAP = 1.0  # points between two names
TO_THE_RIGHT = 6.0  # points from a line's end
NUDGED = 4.0  # points; a name that was moved farther gets a line to where it belongs
LETTER = 0.57 * SMALL  # points that a letter is wide, about
HANDLE, BETWEEN = 20.0, 12.0  # points
MOST = 12  # names in a panel; beyond, a legend


@dataclass(frozen=True)
class End:
    """Where a line ends, in data coordinates, and what to call it."""

    x: float
    y: float
    text: str
    colour: str


def at_ends(made: Figure, ends: Sequence[tuple[Axes, Sequence[End]]]) -> None:
    """Name the lines of each panel. Limits and scales must be set: it lays the figure out to see how much room is."""
    notes = [[_note(axes, end) for end in some] for axes, some in ends]
    made.draw_without_rendering()  # constrained layout makes room for the names
    for (axes, some), own in zip(ends, notes, strict=True):
        _move_apart(made, axes, some, own)


def _note(axes: Axes, end: End) -> Annotation:
    return axes.annotate(
        plain(end.text),
        (end.x, end.y),
        xytext=(TO_THE_RIGHT, 0),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=SMALL,
        color=end.colour,
        annotation_clip=False,
    )


def _move_apart(made: Figure, axes: Axes, ends: Sequence[End], notes: Sequence[Annotation]) -> None:
    points = 72.0 / made.dpi
    boxes = [note.get_window_extent() for note in notes]
    spans = [(box.x0 * points, box.x1 * points) for box in boxes]
    heights = [box.height * points for box in boxes]
    wanted = [(box.y0 + box.y1) / 2 * points for box in boxes]
    area = axes.get_window_extent()
    got = spread(wanted, heights, spans, area.y0 * points, area.y1 * points)
    for note, end, before, after in zip(notes, ends, wanted, got, strict=True):
        note.set_position((TO_THE_RIGHT, after - before))
        if abs(after - before) > NUDGED:
            axes.annotate(
                "",
                (end.x, end.y),
                xytext=(TO_THE_RIGHT, after - before),
                textcoords="offset points",
                annotation_clip=False,
                arrowprops={
                    "arrowstyle": "-",
                    "color": end.colour,
                    "lw": 0.6,
                    "alpha": 0.7,
                    "shrinkA": 0,
                    "shrinkB": 2,
                },
            )


def spread(
    wanted: Sequence[float], heights: Sequence[float], spans: Sequence[tuple[float, float]], low: float, high: float
) -> list[float]:
    """Vertical centres near the wanted ones, so that names that overlap sideways do not overlap. Pure."""
    order = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    bottoms = [low + height / 2 for height in heights]
    tops = [max(high - height / 2, bottom) for height, bottom in zip(heights, bottoms, strict=True)]
    apart: list[list[tuple[int, float]]] = [[] for _ in wanted]  # for each: those below that it must clear, by how much
    for place, upper in enumerate(order):
        for lower in order[:place]:
            if spans[lower][0] < spans[upper][1] and spans[upper][0] < spans[lower][1]:
                apart[upper].append((lower, (heights[lower] + heights[upper]) / 2 + GAP))

    def raised(got: list[float]) -> list[float]:
        for upper in order:
            got[upper] = max(got[upper], bottoms[upper], *(got[lower] + by for lower, by in apart[upper]))
        return got

    def lowered(got: list[float]) -> list[float]:
        for upper in reversed(order):
            got[upper] = min(got[upper], tops[upper])
            for lower, by in apart[upper]:
                got[lower] = min(got[lower], got[upper] - by)
        return got

    # Either is a solution where there is room; so is what lies in the midst of them, and it moves both sides alike.
    both = zip(lowered(raised(list(wanted))), raised(lowered(list(wanted))), bottoms, tops, strict=True)
    return [min(max((one + other) / 2, bottom), top) for one, other, bottom, top in both]


def legend(made: Figure, handles: Sequence[tuple[str, Artist]]) -> None:
    """Above the panels, where lines end in the midst of others or there are too many; in as many columns as fit."""
    count = columns([name for name, _ in handles], 72.0 * made.get_figwidth())
    made.set_figheight(made.get_figheight() + LINE * -(-len(handles) // count))  # not at the panels' cost
    made.legend(
        [handle for _, handle in handles],
        [plain(name) for name, _ in handles],
        loc="outside upper left",
        ncols=count,
        fontsize=SMALL,
        frameon=False,
        labelcolor=INK,
        handlelength=HANDLE / SMALL,
        columnspacing=BETWEEN / SMALL,
    )


def columns(names: Sequence[str], width: float) -> int:
    """How many columns of a legend fit into that many points. Pure; Matplotlib fills them one after another, the first
    ones with one name more where it does not come out even."""
    for count in range(len(names), 1, -1):
        each, more = divmod(len(names), count)
        starts = [column * each + min(column, more) for column in range(count + 1)]
        widths = [max(len(name) for name in names[start:stop]) for start, stop in pairwise(starts)]
        if sum(LETTER * longest + HANDLE + BETWEEN for longest in widths) <= width:
            return count
    return 1
