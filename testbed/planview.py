"""A plan for people, on a terminal of 100 columns, and for programs, as JSON. `testbed plan` calls it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from testbed.network.shape import Shape
from testbed.network.shaping import limit_packets
from testbed.plan import LinkPlan, NetworkPlan, Path, Plan, Point
from testbed.scenario.units import Duration, Rate, Share
from testbed.topology.gossip import Gossip
from testbed.topology.graph import listing

WIDTH = 100
MOST_PAIRS = 6  # shown one by one whoever gossips with whom: 4 workers
MOST_ROWS = 16


def show(plan: Plan, *, every_path: bool = False) -> None:
    """Print the plan; links and paths are those of the first network point."""
    console = Console(width=None if Console().width < WIDTH else WIDTH, highlight=False)
    network = plan.network
    console.print(Text.assemble((plan.name, "bold"), f": {_summary(plan)}"))
    sections: list[tuple[str, RenderableType]] = [
        ("workers", _workers(plan)),
        (f"links{_at(plan)}", _links(network)),
        (f"paths{_at(plan)}", _paths(plan, every=every_path)),
        ("gossip", _gossip(plan)),
        ("cells", _cells(plan)),
    ]
    if plan.warnings:
        sections.append(("warnings", _warnings(plan.warnings)))
    for title, body in sections:
        console.print()
        console.print(Text(title, style="bold cyan"))
        console.print(Padding(body, (0, 0, 0, 2), expand=False))


def as_json(plan: Plan) -> dict[str, Any]:
    """Everything, with keys that stay."""
    from testbed.scenario.load import as_data

    return {
        "name": plan.name,
        "points": [_point_json(point) for point in plan.points],
        "cells": [asdict(cell) for cell in plan.cells],
        "variants": [as_data(scenario) for scenario in plan.variants],
        "warnings": list(plan.warnings),
    }


def _point_json(point: Point) -> dict[str, Any]:
    network, gossip = point.network, point.gossip
    spectrum = gossip.static and gossip.symmetric
    return {
        "index": point.index,
        "label": point.label,
        "network": {
            **asdict(network),
            "links": [
                {
                    **asdict(link),
                    "name": link.name,
                    "limit_ab": limit_packets(link.ab, link.ba, network.mtu),
                    "limit_ba": limit_packets(link.ba, link.ab, network.mtu),
                }
                for link in network.links
            ],
        },
        "paths": [asdict(path) for path in network.paths],
        "gpus": {name: [asdict(gpu) for gpu in some] for name, some in point.gpus.items()},
        "gossip": {
            "name": gossip.name,
            "matrices": [matrix.tolist() for matrix in gossip.matrices],
            "spectral_gap": gossip.spectral_gap,
            "gamma_opt": gossip.gamma_opt if spectrum else None,
        },
    }


def _summary(plan: Plan) -> str:
    network = plan.network
    switches = len(network.routers) - len(network.workers)
    counts = [_count(len(network.workers), "worker"), *([_count(switches, "switch")] if switches else [])]
    counts += [_count(len(network.links), "link"), _count(len(plan.points), "network point")]
    return ", ".join([*counts, _count(len(plan.cells), "cell")])


def _workers(plan: Plan) -> RenderableType:
    network, gpus = plan.network, plan.points[0].gpus
    rows: list[tuple[str, ...]] = [(worker.name, worker.address, worker.gateway) for worker in network.workers]
    columns = ["worker", "address", "router's port"]
    if any(gpus.values()):
        columns.append("GPU")
        rows = [(*row, ", ".join(map(str, gpus[row[0]])) or "none") for row in rows]
    table = _table(*columns)
    for row in _some(rows):
        table.add_row(*row)
    names = {worker.router for worker in network.workers}
    switches = [router for router in network.routers if router not in names]
    longest = max((len(routes) for routes in network.routes.values()), default=0)
    lines = [f"every worker has a router of its name; route tables have at most {_count(longest, 'entry')}"]
    if switches:
        lines.insert(0, f"switches: {listing(switches)}")
    return Group(table, Text("\n".join(lines)))


def _links(network: NetworkPlan) -> RenderableType:
    """One row per link, or per direction where they differ; in large networks one row for all links that are alike."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for link in network.links:
        for name, *numbers in _directions(link, network.mtu):
            key = (*numbers,) if len(network.links) > MOST_ROWS else (*numbers, name)
            rows.setdefault(key, []).append(name)
    table = _table("link", "latency", "rate", "jitter", "loss", "limit")
    for (latency, rate, jitter, loss, limit, *_), names in rows.items():
        count = f" ({len(names)})" if len(names) > 1 else ""
        table.add_row(_ends(names) + count, latency, rate, jitter, loss, limit)
    return table


def _directions(link: LinkPlan, mtu: int) -> Iterable[tuple[str, ...]]:
    ab = _shape(link.ab, link.ba, mtu, link.trace_ab is not None)
    ba = _shape(link.ba, link.ab, mtu, link.trace_ba is not None)
    if ab == ba:
        return [(f"{link.a} ↔ {link.b}", *ab)]
    return [(f"{link.a} → {link.b}", *ab), (f"{link.b} → {link.a}", *ba)]


def _shape(shape: Shape, reverse: Shape, mtu: int, trace: bool) -> tuple[str, ...]:
    return (
        _time(shape.latency),
        _rate(shape.rate) + (" (trace)" if trace else ""),
        _time(shape.jitter) if shape.jitter else "",
        str(Share(shape.loss)) if shape.loss else "",
        f"{limit_packets(shape, reverse, mtu)} packets",
    )


def _paths(plan: Plan, *, every: bool) -> RenderableType:
    """The paths that gossip uses and the longest of the others; all of them where they are few or asked for."""
    paths = plan.network.paths
    if not paths:
        return Text("one worker: no paths")
    if every or len(paths) <= MOST_PAIRS:
        return _path_table(paths)
    rank = {worker.name: worker.rank for worker in plan.network.workers}
    rounds = range(len(plan.gossip.matrices))
    used = [
        path
        for path in paths
        if any(rank[path.target] in plan.gossip.sources(step, rank[path.source]) for step in rounds)
    ]
    if len(used) > MOST_ROWS:
        return _paths_by_length(paths)
    if len(used) == len(paths):
        return _path_table(paths)
    others = [path for path in paths if path not in used]
    longest = max(others, key=lambda path: path.rtt)
    pairs = _count(len(others), "pair")
    note = f"the last is the longest of {pairs} that do not gossip with each other; --paths shows all"
    return Group(_path_table([*used, longest]), Text(note))


def _path_table(paths: Sequence[Path]) -> Table:
    table = _table("path", "round trip", "slowest link", left=1)
    for path in paths:
        same = path.back == path.hops[::-1]
        way = " → ".join(path.hops) + ("" if same else f", back {' → '.join(path.back)}")
        there, back = _rate(path.rate), _rate(path.rate_back)
        table.add_row(way, _time(path.rtt), there if there == back else f"{there} / {back}")
    return table


def _paths_by_length(paths: Sequence[Path]) -> Table:
    table = _table("hops", "pairs", "round trip", "slowest link", left=0)
    for hops in sorted({len(path.hops) - 1 for path in paths}):
        group = [path for path in paths if len(path.hops) - 1 == hops]
        rates = [rate for path in group for rate in (path.rate, path.rate_back)]
        limited = sorted(rate for rate in rates if rate is not None)
        fastest = None if None in rates else limited[-1]
        rtts = sorted(path.rtt for path in group)
        slowest = limited[0] if limited else None
        table.add_row(
            str(hops),
            str(len(group)),
            _between(_time(rtts[0]), _time(rtts[-1])),
            _between(_rate(slowest), _rate(fastest)),
        )
    return table


def _gossip(plan: Plan) -> RenderableType:
    gossip, names = plan.gossip, [worker.name for worker in plan.network.workers]
    lines = [f"{gossip.name}: spectral gap {gossip.spectral_gap:.4f}"]
    if gossip.static and gossip.symmetric:
        lines[0] += f", fastest exact gossip with γ = {gossip.gamma_opt:.4f}"
    if not gossip.static:
        lines[0] += f" per round, {len(gossip.matrices)} rounds in turn"
    weights = [_weights_of(gossip, 0, rank) for rank in range(gossip.size)]
    alike = gossip.static and gossip.size > 1 and all(w == weights[0] for w in weights) and len(set(weights[0][1])) == 1
    if alike:
        lines.append(f"everyone mixes {weights[0][0]} of its own with {weights[0][1][0]} of each neighbour's")
    for step in range(len(gossip.matrices)):
        if not gossip.static:
            lines.append(f"round {step}:")
        rows = [f"{name} ← {_sources(gossip, step, rank, names, not alike)}" for rank, name in enumerate(names)]
        lines += _some_lines(rows, MOST_ROWS if gossip.static else 8)
    return Text("\n".join(lines))


def _sources(gossip: Gossip, step: int, rank: int, names: Sequence[str], weights: bool) -> str:
    sources = gossip.sources(step, rank)
    shares = [f" {_fraction(gossip.weight(step, rank, other))}" if weights else "" for other in sources]
    return listing([f"{names[other]}{share}" for other, share in zip(sources, shares, strict=True)])


def _weights_of(gossip: Gossip, step: int, rank: int) -> tuple[str, list[str]]:
    others = sorted(_fraction(gossip.weight(step, rank, other)) for other in gossip.sources(step, rank))
    return _fraction(gossip.weight(step, rank, rank)), others


def _cells(plan: Plan) -> RenderableType:
    if len(plan.cells) <= MOST_ROWS:
        table = _table("cell", "what", "seed", left=2)
        for cell in plan.cells:
            table.add_row(cell.id, cell.label, str(cell.seed))
        return table
    repeats = 1 + max(cell.repeat for cell in plan.cells)
    methods = list(dict.fromkeys(cell.label.split(" / ")[0] for cell in plan.cells))
    lines = [
        f"{len(plan.cells)} = {_count(len(plan.variants), 'variant')} × {len(methods)} methods × {repeats} repeats"
    ]
    lines += [f"method  {name}" for name in _some_lines(methods, MOST_ROWS)]
    if len(plan.points) > 1:
        lines += [f"network {name}" for name in _some_lines([point.label for point in plan.points], MOST_ROWS)]
    return Text("\n".join(lines))


def _warnings(warnings: Sequence[str]) -> RenderableType:
    table = Table.grid(padding=(0, 1))
    for warning in warnings:
        table.add_row(Text("!", style="bold yellow"), Text(warning))
    return table


def _at(plan: Plan) -> str:
    return f" at {plan.points[0].label} (the first of {len(plan.points)} points)" if len(plan.points) > 1 else ""


def _table(*columns: str, left: int = 1) -> Table:
    """A plain table; the first `left` columns are text, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right", overflow="fold")
    return table


def _some(rows: Sequence[tuple[str, ...]], most: int = MOST_ROWS) -> list[tuple[str, ...]]:
    """All rows, or the first and the last with a count of what is left out."""
    if len(rows) <= most:
        return list(rows)
    left_out = (f"… {len(rows) - 4} more", *("" for _ in rows[0][1:]))
    return [*rows[:3], left_out, rows[-1]]


def _some_lines(lines: Sequence[str], most: int) -> list[str]:
    return [row[0] for row in _some([(line,) for line in lines], most)]


def _ends(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _time(seconds: float) -> str:
    return str(Duration(round(seconds, 6)))


def _rate(rate: int | None) -> str:
    return "unlimited" if rate is None else str(Rate(rate))


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


def _fraction(weight: float) -> str:
    near = Fraction(weight).limit_denominator(1000)
    return str(near) if abs(float(near) - weight) < 1e-9 else f"{weight:.4f}"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
