"""Mixing weights: from a graph of ranks, or a matrix the user gives, to a `Gossip`. Pure; the plan calls it."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from testbed.topology.gossip import Gossip
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
    """The user's own matrix: row i says what worker i takes from each."""
    lengths = {len(row) for row in rows}
    if len(rows) != n or lengths != {n}:
        columns = lengths.pop() if len(lengths) == 1 else f"{min(lengths)} to {max(lengths)}"
        raise TopologyError(f"the matrix of weights is {len(rows)}×{columns}, but there are {n} workers")
    W = np.array(rows, dtype=np.float64)
    if not np.isfinite(W).all() or (W < 0).any():
        i, j = np.argwhere(~(W >= 0) | ~np.isfinite(W))[0]
        raise TopologyError(f"weights are 0 or more, but row {i}, column {j} is {W[i, j]:g}")
    for axis, line in ((1, "row"), (0, "column")):
        sums = W.sum(axis=axis)
        for wrong in np.flatnonzero(np.abs(sums - 1) > TOLERANCE):
            raise TopologyError(
                f"{line} {wrong} of the weights sums to {sums[wrong]:.6g}, not 1",
                hint="rows and columns must all sum to 1, or the workers' mean drifts",
            )
    return checked(name, (W,))


def one_peer_exponential(n: int) -> Gossip:
    """In round t worker i takes half from i − 2^t (modulo n), t = 0 … ⌈log2 n⌉ − 1, and starts over.

    One message per worker and round (Assran et al. 2019, Ying et al. 2021). Where n is a power of two, one cycle
    averages exactly.
    """
    rounds = max(1, (n - 1).bit_length())
    eye = np.eye(n)
    matrices = tuple((eye + np.roll(eye, -(1 << t) % n, axis=1)) / 2 for t in range(rounds))
    return checked("one-peer-exponential", matrices)


def checked(name: str, matrices: tuple[NDArray[np.float64], ...]) -> Gossip:
    """The gossip graph, if it can bring all workers to agree."""
    who = nx.from_numpy_array(sum(matrices, np.zeros_like(matrices[0])) > 0)
    check_connected(nx.relabel_nodes(who, {rank: f"w{rank}" for rank in who}), f"gossip graph {name}")
    gossip = Gossip(name, matrices)
    if gossip.size > 1 and gossip.spectral_gap < 1e-9:
        raise TopologyError(
            f"gossip graph {name} never reaches agreement: its spectral gap is 0",
            hint="give the workers some weight of their own, on the diagonal",
        )
    return gossip
