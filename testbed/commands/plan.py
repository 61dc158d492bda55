"""A plan for people, on a terminal of 100 columns, and for programs, as JSON. `testbed plan` calls it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path

import click
import numpy as np
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from testbed.commands.options import JSON, PROFILE, SETS
from testbed.console import SafeConsole
from testbed.link.netem import limit_packets
from testbed.link.shape import PROPERTIES, WRITTEN, Shape, unusual
from testbed.output import say
from testbed.plan.model import LinkPlan, NetworkPlan, Plan, WorkerPath
from testbed.plan.pairs import UNLIMITED
from testbed.plan.whole import ALL_PAIRS, gossiping, pairs_of, plan_data
from testbed.scenario.links import value_in_words
from testbed.scenario.units import Duration, Rate
from testbed.topology.gossip import Gossip
from testbed.topology.graph import listing

WIDTH = 100
MOST_PAIRS = 6  # shown one by one, neighbours or not: 4 workers
MOST_ROWS = 16


def show(plan: Plan, *, every_path: bool = False) -> None:
    """Print the plan; links and paths are those of the first network point."""
    console = SafeConsole(width=None if SafeConsole().width < WIDTH else WIDTH, highlight=False)
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


def _summary(plan: Plan) -> str:
    network = plan.network
    switches = len(network.routers) - len(network.workers)
    counts = [_count(len(network.workers), "worker"), *([_count(switches, "switch")] if switches else [])]
    counts += [_count(len(network.links), "link"), _count(len(plan.points), "network point")]
    return ", ".join([*counts, _count(len(plan.cells), "cell"), *_slow_motion(plan)])


def _slow_motion(plan: Plan) -> list[str]:
    factors = sorted({point.network.slow_motion for point in plan.points})
    if factors == [1]:
        return []
    return [f"slow motion {_between(*(f'{factor:g}×' for factor in (factors[0], factors[-1])))}"]


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
    """Print one row per link, or per direction where they differ; in large networks one row for all equal links."""
    rows: dict[tuple[str, ...], list[str]] = {}
    columns = _columns(network)
    for link in network.links:
        for name, *numbers in _directions(link, network.mtu, columns):
            key = (*numbers,) if len(network.links) > MOST_ROWS else (*numbers, name)
            rows.setdefault(key, []).append(name)
    table = _table("link", *columns, "limit")
    for cells, names in rows.items():
        count = f" ({len(names)})" if len(names) > 1 else ""
        table.add_row(_ends(names) + count, *cells[: len(columns) + 1])
    return table


def _columns(network: NetworkPlan) -> list[str]:
    """Return the properties to show: some always, rare ones where a link has them."""
    told = {name for link in network.links for shape in (link.ab, link.ba) for name in unusual(shape)}
    return [name for name in WRITTEN if name != "buffer" and (name in told or not PROPERTIES[name].sparse)]


def _directions(link: LinkPlan, mtu: int, columns: Sequence[str]) -> Iterable[tuple[str, ...]]:
    ab = _shape(link.ab, link.ba, mtu, columns, link.trace_ab is not None)
    ba = _shape(link.ba, link.ab, mtu, columns, link.trace_ba is not None)
    if ab == ba:
        return [(f"{link.a} ↔ {link.b}", *ab)]
    return [(f"{link.a} → {link.b}", *ab), (f"{link.b} → {link.a}", *ba)]


def _shape(shape: Shape, reverse: Shape, mtu: int, columns: Sequence[str], trace: bool) -> tuple[str, ...]:
    told = unusual(shape, besides=("latency", "rate"))
    cells = {name: value_in_words(name, value) for name, value in told.items() if name in columns}
    cells["rate"] += " (trace)" if trace else ""
    if "jitter" in cells and "jitter_shape" in told:
        cells["jitter"] += f" {shape.jitter_shape}"
    return (*(cells.get(name, "") for name in columns), f"{limit_packets(shape, reverse, mtu)} packets")


def _paths(plan: Plan, *, every: bool) -> RenderableType:
    """Print the paths that gossip uses and the longest of the others; all where they are few or asked for."""
    network, count = plan.network, pairs_of(plan.network)
    if not count:
        return Text("one worker: no paths")
    if count <= MOST_PAIRS or (every and len(network.workers) <= ALL_PAIRS):
        return _path_table(network.paths)
    used = sorted(gossiping(plan.gossip))
    if every:
        note = f"these gossip with each other; of more than {ALL_PAIRS} workers, not all {count} pairs are listed"
        return Group(_paths_by_length(network), _path_table(_between_ranks(network, used)), Text(note))
    if len(used) > MOST_ROWS:
        return _paths_by_length(network)
    if len(used) == count:
        return _path_table(network.paths)
    others = [
        path
        for pair, path in zip(combinations(range(len(network.workers)), 2), network.paths, strict=True)
        if pair not in used
    ]
    longest = max(others, key=lambda path: path.rtt)
    pairs = _count(len(others), "pair")
    note = f"the last is the longest of {pairs} that do not gossip with each other; --paths shows all"
    return Group(_path_table([*_between_ranks(network, used), longest]), Text(note))


def _between_ranks(network: NetworkPlan, pairs: Iterable[tuple[int, int]]) -> list[WorkerPath]:
    return [network.forwarding.path(*pair) for pair in pairs]


def _path_table(paths: Sequence[WorkerPath]) -> Table:
    table = _table("path", "round trip", "slowest link", left=1)
    for path in paths:
        same = path.back == path.hops[::-1]
        way = " → ".join(path.hops) + ("" if same else f", back {' → '.join(path.back)}")
        there, back = _rate(path.rate), _rate(path.rate_back)
        table.add_row(way, _time(path.rtt), there if there == back else f"{there} / {back}")
    return table


def _paths_by_length(network: NetworkPlan) -> Table:
    """Return how many pairs are how far apart, counted from the lower rank."""
    known, lower = network.pairs, np.triu_indices(len(network.workers), 1)
    hops = known.hops[lower]
    order = np.argsort(hops, kind="stable")
    lengths, starts, counts = np.unique(hops[order], return_index=True, return_counts=True)
    rtts = (known.latency + known.latency.T)[lower][order]
    slowest = np.minimum(known.rate, known.rate.T)[lower][order]
    fastest = np.maximum(known.rate, known.rate.T)[lower][order]
    rows = zip(
        lengths.tolist(),
        counts.tolist(),
        zip(np.minimum.reduceat(rtts, starts).tolist(), np.maximum.reduceat(rtts, starts).tolist(), strict=True),
        zip(np.minimum.reduceat(slowest, starts).tolist(), np.maximum.reduceat(fastest, starts).tolist(), strict=True),
        strict=True,
    )
    table = _table("hops", "pairs", "round trip", "slowest link", left=0)
    texts = [
        (str(h), str(count), _between(*map(_time, rtt)), _between(*map(_way_rate, rate)))
        for h, count, rtt, rate in rows
    ]
    for row in _some(texts):
        table.add_row(*row)
    return table


def _gossip(plan: Plan) -> RenderableType:
    gossip, names = plan.gossip, [worker.name for worker in plan.network.workers]
    lines = [f"{gossip.name}: spectral gap {gossip.spectral_gap:.4f}"]
    if gossip.static and gossip.symmetric:
        lines[0] += f", fastest exact gossip with γ = {gossip.gamma_opt:.4f}"
    if gossip.drawn is not None:
        lines[0] += f" per round; drawn anew in every round, the first {len(gossip.matrices)} are"
    elif not gossip.static:
        lines[0] += f" per round, {len(gossip.matrices)} rounds in turn"
    if gossip.kind == "column":
        lines[0] += "; weights sum to 1 over what a worker sends, not over what it takes: for push-sum (sgp)"
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
    """Return a plain table; the first `left` columns are text, the others numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < left else "right", overflow="fold")
    return table


def _some(rows: Sequence[tuple[str, ...]], most: int = MOST_ROWS) -> list[tuple[str, ...]]:
    """Return all rows, or the first and the last with a count of what is left out."""
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


def _way_rate(rate: int) -> str:
    return _rate(None if rate == UNLIMITED else rate)


def _between(least: str, most: str) -> str:
    return least if least == most else f"{least} to {most}"


@cache
def _fraction(weight: float) -> str:
    near = Fraction(weight).limit_denominator(1000)
    return str(near) if abs(float(near) - weight) < 1e-9 else f"{weight:.4f}"


def _count(number: int, noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


@click.command("plan")
@click.argument("file", type=click.Path(path_type=Path))
@JSON
@click.option("--paths", "every_path", is_flag=True, help="The paths between all workers, not only the usual ones.")
@PROFILE
@SETS
def command(file: Path, as_json: bool, every_path: bool, profile: str | None, sets: tuple[str, ...]) -> None:
    """Show what a scenario would build and run; nothing is started."""
    from testbed.plan.make import plan as make_plan
    from testbed.plan.make import with_methods_checked
    from testbed.plan.slow_motion import room
    from testbed.run.trial import paced
    from testbed.runtime.gpus import offered
    from testbed.scenario.load import load

    scenario = load(file, sets, profile)
    made, notes = paced(with_methods_checked(make_plan(scenario, gpus=offered(scenario))), room(scenario.box))
    for note in notes:
        say(f"note: {note}", err=True)
    if as_json:
        click.echo(json.dumps(plan_data(made), indent=1))
    else:
        show(made, every_path=every_path)
