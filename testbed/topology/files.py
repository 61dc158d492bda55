"""Topologies from GraphML and GML files, in the style of the Internet Topology Zoo.

Nodes carry `Latitude` and `Longitude` in degrees, links may carry `LinkSpeedRaw` in bit/s. A link's latency is the
great-circle distance of its ends at two thirds of the speed of light, the speed in glass, and nothing else: real fibre
takes detours and passes equipment, so real latencies are higher. What a file leaves open comes from `network.link`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx

from testbed.topology.graph import Edge, Topology, TopologyError, listing

EARTH_RADIUS = 6_371_008.8  # metres, mean
LIGHT_IN_FIBRE = 299_792_458.0 * 2 / 3  # m/s


def great_circle_latency(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Seconds between two (latitude, longitude) points, in degrees, along the great circle (haversine formula)."""
    (lat_a, lon_a), (lat_b, lon_b) = ((math.radians(lat), math.radians(lon)) for lat, lon in (a, b))
    h = math.sin((lat_b - lat_a) / 2) ** 2 + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    return 2 * EARTH_RADIUS * math.asin(min(1.0, math.sqrt(h))) / LIGHT_IN_FIBRE


def read_graph(path: Path) -> Topology:
    """Every node of the file is a worker, named by its label without spaces; parallel links become one."""
    graph = _parse(path)
    if len(graph) == 0:
        raise TopologyError(f"{path.name} has no nodes")
    names = _names(graph)
    places = {node: _place(data) for node, data in graph.nodes(data=True)}
    links: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for a, b, data in graph.edges(data=True):
        if a != b:
            links.setdefault((names[a], names[b]), []).append(_numbers(places[a], places[b], data))
    warnings = _missing(path.name, {names[node]: place for node, place in places.items()}, links)

    order = {name: number for number, name in enumerate(names.values())}
    edges: list[Edge] = []
    parallel = False
    for (a, b), there in links.items():
        back = links.get((b, a), [])
        if back and order[b] < order[a]:
            continue  # a directed file lists both directions; the other one makes the link
        parallel = parallel or len(there) > 1 or len(back) > 1
        edges.append(Edge(a, b, _fastest(there), _fastest(back or there)))
    if parallel:
        warnings.append(f"{path.name} has parallel links between the same nodes; each bundle became its fastest link")
    return Topology(path.stem, tuple(names.values()), (), tuple(edges), tuple(warnings))


def _parse(path: Path) -> nx.Graph:
    kind = path.suffix.lower()
    if kind not in (".graphml", ".gml"):
        raise TopologyError(f"{path.name}: a topology file is .graphml or .gml, not {kind or 'without an ending'}")
    try:
        if kind == ".graphml":
            return nx.read_graphml(path)
        text = path.read_text(encoding="utf-8")
        if not re.search(r"^\s*multigraph\s+1", text, re.MULTILINE):
            # many published files list parallel links without saying so, and the reader would refuse them
            text = re.sub(r"graph\s*\[", "graph [\n  multigraph 1", text, count=1)
        return nx.parse_gml(text, label="id")
    except FileNotFoundError:
        raise TopologyError(
            f"there is no topology file {path}", hint="the path is relative to the scenario file"
        ) from None
    except Exception as error:  # the readers raise half a dozen types, all meaning "no such file as this"
        raise TopologyError(f"{path.name} is not {kind[1:]} that networkx reads: {error}") from error


def _names(graph: nx.Graph) -> dict[Any, str]:
    """Labels as node names: letters, digits, dots and underscores; numbered where several nodes share a label."""
    names: dict[Any, str] = {}
    taken: set[str] = set()
    for node, data in graph.nodes(data=True):
        base = re.sub(r"[^\w.]+", "", str(data.get("label", node))) or f"n{node}"
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        names[node] = name
    return names


def _place(data: Mapping[str, Any]) -> tuple[float, float] | None:
    try:
        place = float(data["Latitude"]), float(data["Longitude"])
    except (KeyError, TypeError, ValueError):
        return None  # the Zoo's hyper nodes stand for several sites and have no place
    return place if all(map(math.isfinite, place)) else None


def _numbers(a: tuple[float, float] | None, b: tuple[float, float] | None, data: Mapping[str, Any]) -> dict[str, Any]:
    numbers: dict[str, Any] = {}
    if a and b:
        numbers["latency"] = great_circle_latency(a, b)
    try:
        rate = float(data.get("LinkSpeedRaw", 0))
    except (TypeError, ValueError):
        rate = 0.0
    if rate > 0:
        numbers["rate"] = round(rate)
    return numbers


def _missing(
    file: str, places: Mapping[str, tuple[float, float] | None], links: Mapping[tuple[str, str], object]
) -> list[str]:
    """No coordinates at all is a plain graph, whose latencies the scenario states; some missing deserves a word."""
    nowhere = [name for name, place in places.items() if place is None]
    if not nowhere or len(nowhere) == len(places):
        return []
    count = len({frozenset(link) for link in links if places[link[0]] is None or places[link[1]] is None})
    return [f"{file}: no coordinates for {listing(nowhere)}; {count} links there take the latency of network.link"]


def _fastest(bundle: list[dict[str, Any]]) -> dict[str, Any]:
    return max(bundle, key=lambda numbers: numbers.get("rate", 0))
