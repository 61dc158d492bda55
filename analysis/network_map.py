"""The network as a picture: who is linked with whom, with the latency and rate asked for and what was measured."""

from __future__ import annotations

from math import cos, hypot, pi, sin

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from testbed.link.shape import PROPERTIES, SHARES, Shape
from testbed.plan.model import LinkPlan, NetworkPlan
from testbed.results.run import Run
from testbed.scenario.units import Rate

from . import reading, style
from .labels import legend

AROUND, OUTWARDS = 0.6, 1.16  # of the circle's radius
WORDY = 16  # links; beyond, their values are left to width and colour
SLOWEST, FASTEST = 1.0, 4.2  # points wide
COLOURS = ("#56b4e9", "#2a82c9", "#7a4fb5", "#b0413e")  # short to long latencies


def draw(run: Run, *, point: int = 0) -> Figure:
    """One network point. Width grows with the rate, colour from blue to red with latency; dashed links are not
    faithful."""
    points = run.plan.points
    if not 0 <= point < len(points):
        raise reading.LackingError(f"{run.name} has {len(points)} networks; there is no number {point}")
    network = points[point].network
    if not network.links:
        raise reading.LackingError(f"{run.name}: its network has no links")
    places = _places(network)
    grades = _grades(run, point)
    alike = len({_words(link) for link in network.links}) == 1
    made = style.figure(style.WIDE, (0.6 if alike else 0.8) * style.WIDE)
    axes = style.bare(made.subplots())
    axes.set_axis_off()
    axes.set_aspect("equal")
    latencies = sorted({_latency(link) for link in network.links})
    _draw_links(axes, network, places, latencies, grades)
    if not alike and len(network.links) <= WORDY:
        _name_links(axes, network, places, _links_measured(run, point))
    _draw_nodes(axes, places, {worker.router for worker in network.workers})
    axes.margins(0.09)
    style.title(axes, reading.pretty(points[point].label) or run.data.get("name", run.name))
    if len(latencies) > 1:
        picked = latencies if len(latencies) <= 4 else [latencies[0], latencies[len(latencies) // 2], latencies[-1]]
        legend(made, [(_ms(value), Line2D([], [], color=_colour(value, latencies), lw=2.5)) for value in picked])
    asked = f"asked: every link {_words(network.links[0])}"
    style.remark(
        made,
        asked if alike else "on the links: asked, one way, and in brackets measured; width: rate, colour: latency",
        _measured(run, point),
        "dashed: measured, and not faithful" if any(grade != "faithful" for grade in grades.values()) else "",
    )
    return made


def _draw_links(
    axes: Axes,
    network: NetworkPlan,
    places: dict[str, tuple[float, float]],
    latencies: list[float],
    grades: dict[str, str],
) -> None:
    rates = [float(link.ab.rate) for link in network.links if link.ab.rate]
    for link in network.links:
        (x0, y0), (x1, y1) = places[link.a], places[link.b]
        faithful = grades.get(link.name, "faithful") == "faithful"
        (line,) = axes.plot([x0, x1], [y0, y1], ls="-" if faithful else (0, (3, 2)), lw=_width(link, rates), zorder=1)
        line.set_color(_colour(_latency(link), latencies))


def _name_links(
    axes: Axes, network: NetworkPlan, places: dict[str, tuple[float, float]], measured: dict[str, str]
) -> None:
    """Beside the links that run around the picture, on those that cross it."""
    for link in network.links:
        x, y = (np.array(places[link.a]) + np.array(places[link.b])) / 2
        text = "\n".join(filter(None, (_words(link), measured.get(link.name, ""))))
        words = axes.text(
            x, y, style.plain(text), fontsize=style.SMALL - 0.6, color=style.INK, ha="center", va="center"
        )
        if hypot(x, y) > AROUND:
            words.set_position((x * OUTWARDS, y * OUTWARDS))
            words.set_horizontalalignment("center" if abs(x) < 0.1 else "left" if x > 0 else "right")
        else:
            words.set_bbox({"facecolor": style.PAPER, "edgecolor": "none", "pad": 1.2})


def _draw_nodes(axes: Axes, places: dict[str, tuple[float, float]], workers: set[str]) -> None:
    """Workers are round; routers that none is plugged into are small and square."""
    for name, (x, y) in places.items():
        marker, size, text = ("o", 19.0, style.SMALL) if name in workers else ("s", 11.0, style.SMALL - 2)
        axes.plot([x], [y], marker=marker, ms=size, mfc=style.PAPER, mec=style.INK, mew=1.0, ls="", zorder=2)
        if name in workers or len(places) <= 40:
            axes.text(x, y, style.plain(name), ha="center", va="center", fontsize=text, color=style.INK, zorder=3)


def _places(network: NetworkPlan) -> dict[str, tuple[float, float]]:
    """Routers of workers on a circle in rank order where nothing else is there; else as their links pull them."""
    graph = nx.Graph((link.a, link.b) for link in network.links)
    workers = list(dict.fromkeys(worker.router for worker in network.workers))
    angles = {name: pi / 2 - 2 * pi * index / len(workers) for index, name in enumerate(workers)}
    circle = {name: (cos(angle), sin(angle)) for name, angle in angles.items()}
    if set(graph) <= set(workers):
        return circle
    begin = {name: circle.get(name, (0.0, 0.0)) for name in graph}
    found = nx.spring_layout(graph, pos=begin, iterations=200, seed=1, method="force")
    return {str(name): (float(x), float(y)) for name, (x, y) in found.items()}


def _latency(link: LinkPlan) -> float:
    return float(link.ab.latency + link.ba.latency) / 2


def _words(link: LinkPlan) -> str:
    there, back = _shape(link.ab), _shape(link.ba)
    return there if there == back else f"{link.a}→{link.b} {there}\n{link.b}→{link.a} {back}"


def _shape(shape: Shape) -> str:
    rate = reading.quantity(str(Rate(shape.rate))) if shape.rate else "unlimited"
    return ", ".join([_ms(shape.latency), rate, *_shares(shape)])


def _shares(shape: Shape) -> list[str]:
    return [f"{100 * share:g}% {PROPERTIES[name].label}" for name in SHARES if (share := getattr(shape, name))]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:g} ms"


def _width(link: LinkPlan, rates: list[float]) -> float:
    rate = float(link.ab.rate or 0)
    if not rate or not rates or min(rates) == max(rates):
        return 2.6
    share = np.log(rate / min(rates)) / np.log(max(rates) / min(rates))
    return SLOWEST + (FASTEST - SLOWEST) * float(share)


def _colour(latency: float, latencies: list[float]) -> str:
    if len(latencies) == 1:
        return COLOURS[1]
    low, high = max(latencies[0], 1e-5), max(latencies[-1], 2e-5)
    share = np.log(max(latency, low) / low) / np.log(high / low)
    return COLOURS[min(int(share * len(COLOURS)), len(COLOURS) - 1)]


def _grades(run: Run, point: int) -> dict[str, str]:
    links = run.links
    if links.empty:
        return {}
    bad = links[(links["point"] == point) & (links["grade"] != "faithful") & (links["hops"] == 1)]
    return {f"{a}-{b}": grade for a, b, grade in zip(bad["source"], bad["target"], bad["grade"], strict=True)} | {
        f"{b}-{a}": grade for a, b, grade in zip(bad["source"], bad["target"], bad["grade"], strict=True)
    }


def _links_measured(run: Run, point: int) -> dict[str, str]:
    """What was measured of each link by itself."""
    links = run.links
    found: dict[str, list[str]] = {}
    for row in links[(links["point"] == point) & (links["hops"] == 1)].to_dict("records") if len(links) else ():
        name = "-".join((row["source"], row["target"]))
        back = "-".join((row["target"], row["source"]))
        key = back if back in found else name
        found.setdefault(key, [] if row["rtt_s"] is None else [f"rtt {reading.short(1e3 * row['rtt_s'])} ms"])
        if row["goodput"] is not None and row["goodput"] == row["goodput"]:
            found[key].append(f"{reading.short(row['goodput'] / 1e6)} Mbit/s")
    return {name: f"({', '.join(dict.fromkeys(words))})" for name, words in found.items() if words}


def _measured(run: Run, point: int) -> str:
    links = run.links
    links = links[links["point"] == point] if len(links) else links
    if links.empty:
        return "not measured"
    off = (links["rtt_s"].astype(float) - links["rtt_asked_s"]).abs().max()
    words = [f"round trips at most {1e3 * off:.2f} ms off"] if off == off else []
    rate_off = (links["goodput"].astype(float) / links["goodput_asked"].astype(float) - 1).abs().max()
    words += [f"throughput at most {rate_off:.1%} off"] if rate_off == rate_off else []
    return f"measured: {', '.join(words)}" if words else ""


if __name__ == "__main__":
    reading.command(draw)
