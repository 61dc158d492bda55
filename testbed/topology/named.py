"""Graphs with a name, on ranks 0…n−1: pure functions of n and a few options. For networks and gossip graphs alike."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import networkx as nx

from testbed.seeds import derive
from testbed.topology.graph import TopologyError, did_you_mean

ATTEMPTS = 100  # random graphs drawn before giving up on a connected one


def ring(n: int) -> nx.Graph:
    """Each worker links to the next, the last to the first."""
    return nx.cycle_graph(n) if n > 2 else chain(n)


def chain(n: int) -> nx.Graph:
    """Each worker links to the next."""
    return nx.path_graph(n)


def hub(n: int) -> nx.Graph:
    """Worker 0 links to every other: `star` as a gossip graph. (As a network, `star` has a switch in its centre.)"""
    return nx.star_graph(n - 1)


def complete(n: int) -> nx.Graph:
    """Every worker links to every other."""
    return nx.complete_graph(n)


def torus(n: int, rows: int | None = None, columns: int | None = None) -> nx.Graph:
    """A rows × columns grid whose edges wrap around, numbered row by row; by default as square as n allows."""
    if rows is None and columns is None:
        rows = max(side for side in range(1, math.isqrt(n) + 1) if n % side == 0)
        if rows == 1:
            raise TopologyError(
                f"{n} workers make no torus with two rows or more", hint="take a number with two factors, or a ring"
            )
    rows = rows if rows is not None else n // (columns or 1)
    columns = columns if columns is not None else n // rows
    if rows * columns != n:
        raise TopologyError(f"a {rows}×{columns} torus has {rows * columns} nodes, not {n}")
    grid = nx.grid_2d_graph(rows, columns, periodic=True)
    return nx.relabel_nodes(grid, {(row, column): row * columns + column for row, column in grid})


def hypercube(n: int) -> nx.Graph:
    """Workers whose numbers differ in one bit are linked; n is a power of two."""
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise TopologyError(f"a hypercube needs a power of two, not {n} nodes", hint=f"take {below} or {2 * below}")
    return _numbered(n, ((i, i ^ (1 << bit)) for i in range(n) for bit in range(n.bit_length() - 1)))


def exponential(n: int) -> nx.Graph:
    """Worker i links to i ± 1, 2, 4, 8, …: degree and diameter grow with log n."""
    hops = [1 << bit for bit in range((n - 1).bit_length())]
    return _numbered(n, ((i, (i + hop) % n) for i in range(n) for hop in hops))


def tree(n: int, branching: int = 2) -> nx.Graph:
    """Worker 0 is the root; every worker has `branching` children until n are placed."""
    if branching < 1:
        raise TopologyError(f"a tree needs branching of 1 or more, not {branching}")
    return _numbered(n, (((i - 1) // branching, i) for i in range(1, n)))


def barbell(n: int) -> nx.Graph:
    """Two complete halves joined by one link (by one worker between them where n is odd)."""
    if n < 4:
        raise TopologyError(f"a barbell needs 4 workers or more, not {n}", hint="a chain is the same for fewer")
    return nx.barbell_graph(n // 2, n % 2)


def davis(n: int) -> nx.Graph:
    """Davis' Southern Women social network: 32 nodes, 89 links, degrees 2 to 14."""
    graph = nx.convert_node_labels_to_integers(nx.davis_southern_women_graph())
    if n != len(graph):
        raise TopologyError(f"the davis graph has {len(graph)} nodes, not {n}", hint="set workers: 32")
    return graph


def random_regular(n: int, seed: int, degree: int | None = None) -> nx.Graph:
    """Every worker has `degree` links (3, or 4 where n is odd), drawn from `seed`."""
    degree = degree if degree is not None else min(n - 1, 3 + n % 2)
    if not 0 <= degree < n or n * degree % 2:
        raise TopologyError(
            f"no graph gives each of {n} workers {degree} links",
            hint="degree is below the number of workers, and degree × workers is even",
        )
    return _connected(
        lambda draw: nx.random_regular_graph(degree, n, seed=draw), seed, f"random-regular, degree {degree}"
    )


def erdos_renyi(n: int, seed: int, probability: float | None = None) -> nx.Graph:
    """Each pair is linked with `probability` (2 ln n / n: most draws are connected), drawn from `seed`."""
    if probability is None:
        probability = min(1.0, 2 * math.log(n) / n) if n > 2 else 1.0
    if not 0 < probability <= 1:
        raise TopologyError(f"a probability is above 0 and at most 1, not {probability:g}")
    what = f"erdos-renyi, p = {probability:g}"
    return _connected(lambda draw: nx.gnp_random_graph(n, probability, seed=draw), seed, what)


GRAPHS: Mapping[str, Callable[..., nx.Graph]] = {
    "ring": ring,
    "chain": chain,
    "star": hub,
    "complete": complete,
    "torus": torus,
    "hypercube": hypercube,
    "exponential": exponential,
    "tree": tree,
    "barbell": barbell,
    "davis": davis,
    "random-regular": random_regular,
    "erdos-renyi": erdos_renyi,
}


def named(name: str, n: int, seed: int = 1, options: Mapping[str, Any] | None = None) -> nx.Graph:
    """The graph called `name` on n ranks. `seed` serves graphs drawn at random unless the options bring their own;
    an option that is None is left to its default."""
    make = GRAPHS.get(name)
    if make is None:
        raise TopologyError(
            f"unknown topology {name!r}{did_you_mean(name, GRAPHS)}", hint=f"known: {', '.join(GRAPHS)}"
        )
    if n < 1:
        raise TopologyError(f"a network needs workers, not {n}")
    known = list(inspect.signature(make).parameters)[1:]
    given = {key: value for key, value in (options or {}).items() if value is not None}
    for key in given:
        if key not in known:
            allowed = f"it takes {', '.join(known)}" if known else "it takes none"
            raise TopologyError(f"{name} has no option {key!r}{did_you_mean(key, known)}", hint=allowed)
    if "seed" in known:
        given.setdefault("seed", seed)
    return make(n, **given)


def _numbered(n: int, edges: Iterable[tuple[int, int]]) -> nx.Graph:
    graph = nx.empty_graph(n)
    graph.add_edges_from((a, b) for a, b in edges if a != b)
    return graph


def _connected(draw: Callable[[int], nx.Graph], seed: int, what: str) -> nx.Graph:
    """The first connected graph of a fixed sequence of draws, so that a seed always gives the same one."""
    for attempt in range(ATTEMPTS):
        graph = draw(derive(seed, "graph", attempt))
        if nx.is_connected(graph):
            return graph
    raise TopologyError(f"{what}: none of {ATTEMPTS} draws from seed {seed} is connected", hint="ask for more links")
