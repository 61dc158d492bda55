"""Mixing weights: from a graph of ranks, or a matrix the user gives, to a `Gossip`. Pure; the plan calls it."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from testbed.topology.gossip import Gossip, Kind, RandomPairs
from testbed.topology.graph import TopologyError, check_connected

TOLERANCE = 1e-6  # of the sums of rows and columns


def metropolis(graph: nx.Graph, name: str) -> Gossip:
    """W[i, j] = 1 / (1 + max(degree i, degree j)), the rest on the diagonal: suits every graph (Xiao and Boyd 2004)."""
    n = len(graph)
    W = np.zeros((n, n))
    for i, j in graph.edges:
        W[i, j] = W[j, i] = 1.0 / (1 + max(graph.degree[i], graph.degree[j]))
    W[np.diag_indices(n)] = 1.0 - W.sum(axis=1)
    return checked(name, (W,))


def uniform(graph: nx.Graph, name: str) -> Gossip:
    """W[i, j] = 1 / (1 + degree) for all neighbours and oneself; needs every worker to have equally many."""
    degrees = dict(graph.degree)
    least, most = min(degrees, key=lambda rank: degrees[rank]), max(degrees, key=lambda rank: degrees[rank])
    if degrees[least] != degrees[most]:
        raise TopologyError(
            f"uniform weights need equally many neighbours everywhere, but on {name} w{least} has {degrees[least]} "
            f"and w{most} has {degrees[most]}: the workers' mean would drift",
            hint="use weights: metropolis",
        )
    W = (nx.to_numpy_array(graph, nodelist=range(len(graph))) + np.eye(len(graph))) / (1 + degrees[most])
    return checked(name, (W,))


def given(rows: Sequence[Sequence[float]], n: int, name: str = "given") -> Gossip:
    """The user's own matrix: row i says what worker i takes from each. For push-sum columns that sum to 1 suffice."""
    lengths = {len(row) for row in rows}
    if len(rows) != n or lengths != {n}:
        columns = lengths.pop() if len(lengths) == 1 else f"{min(lengths)} to {max(lengths)}"
        raise TopologyError(f"the matrix of weights is {len(rows)}×{columns}, but there are {n} workers")
    W = np.array(rows, dtype=np.float64)
    if not np.isfinite(W).all() or (W < 0).any():
        i, j = np.argwhere(~(W >= 0) | ~np.isfinite(W))[0]
        raise TopologyError(f"weights are 0 or more, but row {i}, column {j} is {W[i, j]:g}")
    sums = {"row": W.sum(axis=1), "column": W.sum(axis=0)}
    off = {line: np.flatnonzero(np.abs(total - 1) > TOLERANCE) for line, total in sums.items()}
    if not len(off["column"]):
        return checked(name, (W,), "column" if len(off["row"]) else "doubly")
    line = "row" if len(off["row"]) else "column"
    wrong = off[line][0]
    raise TopologyError(
        f"{line} {wrong} of the weights sums to {sums[line][wrong]:.6g}, not 1",
        hint="rows and columns must all sum to 1, or the workers' mean drifts; columns alone are enough for sgp",
    )


def push(graph: nx.Graph | nx.DiGraph, name: str) -> Gossip:
    """P[i, j] = 1 / (1 + out-neighbours of j): each worker shares out what it has equally, itself included. Suits every
    graph, directed or not, in which each worker reaches every other (Kempe et al. 2003). Columns sum to 1; where rows
    do too, it is a doubly stochastic matrix like any other."""
    arcs = nx.to_numpy_array(graph, nodelist=range(len(graph))).T > 0
    P = (arcs | np.eye(len(graph), dtype=bool)).astype(np.float64)
    P /= P.sum(axis=0)
    return checked(name, (P,), "doubly" if np.allclose(P.sum(axis=1), 1) else "column")


def one_peer_exponential(n: int) -> Gossip:
    """In round t worker i takes half from i − 2^t (modulo n), t = 0 … ⌈log2 n⌉ − 1, and starts over.

    One message per worker and round (Assran et al. 2019, Ying et al. 2021). Where n is a power of two, one cycle
    averages exactly.
    """
    rounds = max(1, (n - 1).bit_length())
    eye = np.eye(n)
    matrices = tuple((eye + np.roll(eye, -(1 << t) % n, axis=1)) / 2 for t in range(rounds))
    return checked("one-peer-exponential", matrices)


def random_pairs(n: int, seed: int) -> Gossip:
    """A perfect matching in every round, drawn from the seed: the gossip of epidemic protocols (Boyd et al. 2006)."""
    return RandomPairs.of(n, seed)


def checked(name: str, matrices: tuple[NDArray[np.float64], ...], kind: Kind = "doubly") -> Gossip:
    """The gossip graph, if it can bring all workers to agree."""
    ever = sum(matrices, np.zeros_like(matrices[0])) > 0
    who = nx.from_numpy_array(ever)
    check_connected(nx.relabel_nodes(who, {rank: f"w{rank}" for rank in who}), f"gossip graph {name}")
    if kind == "column":
        _check_strongly_connected(nx.from_numpy_array(ever.T, create_using=nx.DiGraph), name)
    gossip = Gossip(name, matrices, kind)
    if gossip.size > 1 and gossip.spectral_gap < 1e-9:
        raise TopologyError(
            f"gossip graph {name} never reaches agreement: its spectral gap is 0",
            hint="give the workers some weight of their own, on the diagonal",
        )
    return gossip


def _check_strongly_connected(graph: nx.DiGraph, name: str) -> None:
    """Raise unless every worker's messages reach every other; where rows sum to 1 too, being connected is enough."""
    for start in graph:
        if unreached := set(graph) - nx.descendants(graph, start) - {start}:
            raise TopologyError(
                f"gossip graph {name}: nothing that w{start} sends ever reaches w{min(unreached)}",
                hint="directed graphs need a way from each worker to every other",
            )
