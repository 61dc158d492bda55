"""Regions as a network of their own: each region is a switch, its workers hang on it, and links join the regions.

A path between workers of two regions is: the worker's `within` link, the `between` link, the other worker's `within`
link. All workers of a region share its links to the others, as sites share their lines.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from testbed.topology.graph import Edge, Topology, TopologyError, did_you_mean, listing, settings, worker_names

if TYPE_CHECKING:
    from testbed.scenario.network import Network


def region_topology(network: Network, n: int) -> Topology:
    """Of `regions`, `within` and `between`; links join the pairs `between` names, or all if it names none."""
    workers = worker_names(n)
    home: dict[str, str] = {}
    for region, members in network.regions.items():
        if region in workers:
            raise TopologyError(f"region {region!r} is called like a worker")
        for name in members:
            if name not in workers:
                raise TopologyError(
                    f"region {region} has an unknown worker {name!r}{did_you_mean(name, workers)}",
                    hint=f"workers: {listing(workers)}",
                )
            if name in home:
                raise TopologyError(f"{name} is in two regions, {home[name]} and {region}")
            home[name] = region
    if homeless := [name for name in workers if name not in home]:
        raise TopologyError(f"{listing(homeless)} in no region", hint="put every worker into a region")

    inside = [Edge(name, home[name], *(settings(network.regional(name, name)),) * 2) for name in workers]
    one = {region: members[0] for region, members in network.regions.items()}
    across = [
        Edge(a, b, settings(network.regional(one[a], one[b])), settings(network.regional(one[b], one[a])))
        for a, b in _pairs(network)
    ]
    return Topology("regions", workers, tuple(network.regions), (*inside, *across))


def _pairs(network: Network) -> list[tuple[str, str]]:
    """The pairs of regions that are linked, in the regions' order."""
    from testbed.scenario.network import RegionMatrix

    told: set[frozenset[str]] = set()
    if isinstance(network.between, RegionMatrix):
        matrices = [
            value for name in RegionMatrix.settings if isinstance(value := getattr(network.between, name), dict)
        ]
        told = {frozenset((a, b)) for matrix in matrices for a, row in matrix.items() for b in row}
    elif network.between:
        told = {frozenset(pair.regions) for pair in network.between}
    for region in sorted(name for pair in told for name in pair):
        if region not in network.regions:
            raise TopologyError(
                f"between names an unknown region {region!r}{did_you_mean(region, network.regions)}",
                hint=f"regions: {listing(list(network.regions))}",
            )
    across = [pair for pair in told if len(pair) == 2]  # one region twice is about its inside
    return [(a, b) for a, b in combinations(network.regions, 2) if not across or frozenset((a, b)) in across]
