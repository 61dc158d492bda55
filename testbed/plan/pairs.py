"""Sums over the paths between all pairs of workers (hops, latency, slowest link), without the paths themselves.

A few numbers for each router and worker: a thousand workers fit in some 50 MB, where all their paths with every hop
would take gigabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from testbed.plan.model import NetworkPlan

UNLIMITED = np.iinfo(np.int64).max  # in the place of a rate
ARRIVED = -1  # in the place of the arc by which packets leave


class Pairs:
    """Sums over paths. Links have two arcs each: 2i from a to b of link i, 2i + 1 from b to a."""

    def __init__(self, network: NetworkPlan) -> None:
        self.network = network
        number = {name: index for index, name in enumerate(network.routers)}
        self._goals = np.array([number[worker.router] for worker in network.workers], dtype=np.intp)
        self._heads = np.array([number[end] for link in network.links for end in (link.b, link.a)], dtype=np.intp)
        self._arcs = np.stack([self._row(name) for name in network.routers])
        self._arcs[self._goals, np.arange(len(network.workers))] = ARRIVED

    def _row(self, router: str) -> NDArray[np.int32]:
        """Return, by worker's number, the arc by which its packets leave a router."""
        routes = self.network.routes[router]
        links = [self.network.links[route.link] for route in routes]
        arcs = [2 * link.index + (router == link.b) for link in links]
        return np.array([*arcs, ARRIVED], dtype=np.int32)[self.network.forwarding.entries(router)]  # nowhere: the last

    @cached_property
    def hops(self) -> NDArray[np.int64]:
        """Return [source, target], as all below: how many links lie between two workers, by rank."""
        return self.hops_left[self._goals]

    @cached_property
    def latency(self) -> NDArray[np.float64]:
        """Return the one-way seconds of an empty network."""
        shapes = [shape for link in self.network.links for shape in (link.ab, link.ba)]
        return self._along(np.array([shape.latency for shape in shapes], dtype=np.float64), np.add, 0.0)

    @cached_property
    def rate(self) -> NDArray[np.int64]:
        """Return the bit/s of the slowest link, or UNLIMITED."""
        shapes = [shape for link in self.network.links for shape in (link.ab, link.ba)]
        rates = [UNLIMITED if shape.rate is None else shape.rate for shape in shapes]
        return self._along(np.array(rates, dtype=np.int64), np.minimum, UNLIMITED)

    def crossing(self, links: Sequence[int]) -> NDArray[np.bool_]:
        """Return whether packets cross one of these links."""
        marked = np.zeros(len(self._heads), dtype=np.bool_)
        for index in links:
            marked[2 * index : 2 * index + 2] = True
        return self._along(marked, np.logical_or, False)

    def used(self) -> set[tuple[str, str]]:
        """Return the directions of links that packets between workers take, as (from, to)."""
        taken = np.unique(self._arcs[self.passed & (self._arcs != ARRIVED)]).tolist()
        links = [self.network.links[arc // 2] for arc in taken]
        return {(link.b, link.a) if arc % 2 else (link.a, link.b) for arc, link in zip(taken, links, strict=True)}

    @cached_property
    def passed(self) -> NDArray[np.bool_]:
        """Return [router, target]: whether some worker's packets to the target pass or begin there."""
        passed = np.zeros(self._arcs.shape, dtype=np.bool_)
        passed[self._goals] = True
        order = np.argsort(self.hops_left, axis=None, kind="stable")[::-1]
        starts = np.flatnonzero(np.diff(self.hops_left.ravel()[order], prepend=-1))
        for some in np.split(order, starts[1:]):  # the farthest first: routers that forward their packets are nearer
            routers, targets = np.unravel_index(some[passed.ravel()[some]], passed.shape)
            arcs = self._arcs[routers, targets]
            onward = arcs != ARRIVED
            passed[self._heads[arcs[onward]], targets[onward]] = True
        return passed

    @cached_property
    def hops_left(self) -> NDArray[np.int64]:
        """Return [router, target]: how many links lie ahead."""
        return self._joined(np.ones(len(self._heads), dtype=np.int64), np.add, 0)

    def _along(self, values: NDArray[Any], join: np.ufunc, nothing: Any) -> NDArray[Any]:
        return self._joined(values, join, nothing)[self._goals]

    def _joined(self, values: NDArray[Any], join: np.ufunc, nothing: Any) -> NDArray[Any]:
        """Join the arcs' values from each router to each worker, by doubling: what lies within one hop, then within
        two, four and so on, until all have arrived."""
        here = np.arange(len(self._arcs))[:, np.newaxis]
        there = np.where(self._arcs == ARRIVED, here, np.append(self._heads, 0)[self._arcs])
        joined = np.append(values, np.array([nothing], dtype=values.dtype))[self._arcs]  # ARRIVED: the last
        for _ in range(len(self._arcs).bit_length() + 1):
            joined = join(joined, np.take_along_axis(joined, there, axis=0))
            onward = np.take_along_axis(there, there, axis=0)
            if np.array_equal(onward, there):
                break
            there = onward
        if (there != self._goals).any():
            raise AssertionError("some packets loop or have no route")
        return joined
