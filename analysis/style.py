"""How every figure looks: colours and markers of methods, bare axes, text in one size, files in three formats.

Nothing here changes Matplotlib's global settings but while a file is written, under a lock. Neutral things are drawn in
INK and fillings that hide what is behind in PAPER; in an SVG for the web both follow the page's colour scheme.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from textwrap import wrap
from zlib import crc32

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from testbed.output import printable

INK, PAPER = "#1b1c1d", "#fffefd"
FAINT = 0.16  # opacity of grids
QUIET = 0.65  # opacity of remarks
SIZE, SMALL = 9.5, 8.4  # points
LINE = 0.16  # inches, of such text
WIDE = 5.4  # inches, of a figure with one panel
SUFFIXES = (".pdf", ".png", ".svg")

# Okabe and Ito's palette, darkened where it was too light for white paper; all-reduce is neutral, the yardstick.
FAMILIES = {
    "allreduce": INK,
    "ring": "#7d8085",
    "ddp": "#9b8f83",
    "ef_sign": "#8a6f4d",
    "dpsgd": "#2a82c9",
    "naive": "#58aee6",
    "dcd": "#d55e00",
    "ecd": "#cf8a00",
    "deepsqueeze": "#cc79a7",
    "choco": "#009e73",
    "powergossip": "#9468de",
}
GREYS = ("#6f7278", "#8d9097", "#7a6f66")  # further all-reduces
OTHERS = ("#b0413e", "#5d7f8c", "#a39200", "#c2458f", "#4f8a3c")  # methods of users' own
MARKERS = {
    "allreduce": "o",
    "ring": "s",
    "ddp": "p",
    "ef_sign": "d",
    "dpsgd": "v",
    "naive": "<",
    "dcd": "^",
    "ecd": ">",
    "deepsqueeze": "P",
    "choco": "D",
    "powergossip": "s",
}
DASHES: tuple[tuple[float, tuple[float, ...]], ...] = ((0, ()), (0, (5, 2)), (0, (7, 2, 1.5, 2)), (0, (3, 1.2)))
KINDS = {  # parts of a step; also the lanes of a timeline
    "data": "#b8bcc2",
    "compute": "#8b9099",
    "compress": "#cf8a00",
    "send": "#56b4e9",
    "receive": "#9bd0f0",
    "wait": "#d55e00",
    "decompress": "#a39200",
    "mix": "#009e73",
    "update": "#7cc4ac",
    "eval": "#d9dbde",
    "fault": "#b0413e",
    "rejoin": "#e3a09e",
    "other": "#d9dbde",
}
GRADES = {"faithful": "#009e73", "suspect": "#cf8a00", "invalid": "#b0413e", "failed": "#b0413e"}
_writing = threading.Lock()


@dataclass(frozen=True)
class Look:
    """How a method appears, everywhere in a run."""

    colour: str
    marker: str
    dash: tuple[float, tuple[float, ...]]


def looks(methods: Sequence[tuple[str, str]]) -> dict[str, Look]:
    """By label, from all (label, family) of a run in its order: a family has a hue, its members differ in lightness
    and dash. The first of a family looks the same in every run."""
    seen: dict[str, int] = {}
    found: dict[str, Look] = {}
    for label, family in methods:
        if label in found:
            continue
        number = seen.setdefault(family, 0)
        seen[family] += 1
        base = FAMILIES.get(family) or OTHERS[crc32(family.encode()) % len(OTHERS)]
        found[label] = Look(_shade(base, number), MARKERS.get(family, "h"), DASHES[number % len(DASHES)])
    return found


def _shade(colour: str, number: int) -> str:
    """Lighter and darker by turns."""
    if number == 0:
        return colour
    if colour == INK:  # only ink itself follows the page: its shades must be seen on both
        return GREYS[(number - 1) % len(GREYS)]
    amount = min(0.6, 0.28 * ((number + 1) // 2))
    aim = 1.0 if number % 2 else 0.0
    red, green, blue = to_rgb(colour)
    return to_hex((red + (aim - red) * amount, green + (aim - green) * amount, blue + (aim - blue) * amount))


def handle(look: Look) -> Line2D:
    """For a legend."""
    return Line2D([], [], color=look.colour, ls=look.dash, lw=1.5, marker=look.marker, ms=4.5)


def figure(width: float = WIDE, height: float = 3.4) -> Figure:
    """An empty figure on transparent ground that lays itself out."""
    made = Figure(figsize=(width, height), layout="constrained")
    made.patch.set_alpha(0.0)
    return made


def panels(
    count: int, *, height: float = 2.9, columns: int = 2, share: bool = True, around: float = 0.3
) -> tuple[Figure, list[Axes]]:
    """A figure with that many axes, side by side and below each other; scales shared. Heights in inches, of a panel and
    of what is above and below all of them."""
    across = min(count, columns)
    down = -(-count // across)
    made = figure(WIDE if across == 1 else 1.22 * WIDE, height * down + around)
    grid = made.subplots(down, across, squeeze=False, sharex=share, sharey=share)
    axes = [bare(one) for one in grid.flat]
    for one in axes[count:]:
        one.set_visible(False)
    for index, one in enumerate(axes[:count]):
        if index + across >= count:
            one.tick_params(labelbottom=True)
    return made, axes[:count]


def bare(axes: Axes) -> Axes:
    """Two thin axes, a faint grid, everything in ink."""
    axes.patch.set_alpha(0.0)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)
        spine.set_linewidth(0.7)
    for which, length in (("major", 3.0), ("minor", 1.6)):
        axes.tick_params(which=which, color=INK, labelcolor=INK, labelsize=SMALL, length=length, width=0.7)
    axes.grid(True, which="major", color=INK, alpha=FAINT, linewidth=0.6)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, axes._right_title):  # type: ignore[attr-defined]
        text.set_color(INK)
        text.set_fontsize(SIZE)
    return axes


class _Ticks(LogLocator):
    """1, 2, 5, 10, … on the decade or two that most of these axes span; powers of ten beyond."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        narrow = min(vmin, vmax) > 0 and max(vmin, vmax) / min(vmin, vmax) < 3000
        self.set_params(subs=(1.0, 2.0, 5.0) if narrow else (1.0,))
        return super().tick_values(vmin, vmax)


def log_ticks(axis: Axis) -> None:
    """In plain numbers."""
    axis.set_major_locator(_Ticks(numticks=10))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def plain(text: str) -> str:
    """Words of users as they are: Matplotlib would typeset what stands between two $, or fail to. Nor do control
    characters belong in an SVG."""
    return printable(text).replace("$", r"\$")


def title(axes: Axes, text: str) -> None:
    axes.set_title(plain(text), loc="left", fontsize=SIZE, color=INK, pad=6)


def remark(made: Figure, *texts: str) -> None:
    """What a reader must know to trust the figure, below it."""
    letters = int(72.0 * made.get_figwidth() / (0.52 * SMALL))
    said = [line for text in texts for line in wrap(text, letters)]
    if said:
        made.set_figheight(made.get_figheight() + LINE * len(said))
        below = made.supxlabel(plain("\n".join(said)), fontsize=SMALL, color=INK, x=0.01, ha="left")
        below.set_alpha(QUIET)


def save(made: Figure, path: Path) -> None:
    """As PDF, PNG or SVG, by the name's end. The same figure gives the same bytes."""
    clean: dict[str, None] = {"Date": None} if path.suffix == ".svg" else {}
    clean |= {"CreationDate": None} if path.suffix == ".pdf" else {}
    with _writing, mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.stem, "pdf.fonttype": 42}):
        made.patch.set_alpha(1.0)
        made.savefig(path, facecolor=PAPER, dpi=200, metadata=clean)
        made.patch.set_alpha(0.0)


def svg(made: Figure, name: str) -> str:
    """An <svg> to put into a page: it is as wide as there is room, has the page's colours and font, and ids that begin
    with `name`, so that several can stand in one page."""
    text = StringIO()
    with _writing, mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        made.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return web(text.getvalue(), name)


def web(text: str, name: str) -> str:
    """What `svg` does to Matplotlib's file."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    head, _, body = text.partition(">")
    box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', head)
    assert box, "Matplotlib writes a viewBox"
    head = (
        f'<svg id="{name}" class="figure" xmlns="http://www.w3.org/2000/svg" '
        f'xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 {box[1]} {box[2]}" role="img" '
        f'style="width: 100%; max-width: {1.6 * float(box[1]):.0f}px; height: auto"'
    )
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', body)
    # Matplotlib's rule would hold for the whole page.
    body = body.replace("*{stroke-linejoin", f"#{name} text {{fill: currentColor}} #{name} *{{stroke-linejoin")
    body = re.sub(rf"{INK}|#000000", "currentColor", body)
    body = body.replace(PAPER, "var(--paper, Canvas)")
    body = re.sub(r"(font: [^;\"]*?px )[^;\"]*", r"\1system-ui, sans-serif", body)
    body = re.sub(r"\n\s*", "\n", body)
    return f"{head}>{body}".strip()
