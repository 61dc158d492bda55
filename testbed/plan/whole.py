"""A whole plan as plain data, with keys that stay: `testbed plan --json`. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from testbed.link.netem import limit_packets
from testbed.plan import file
from testbed.plan.model import NetworkPlan, Plan, Point
from testbed.scenario.load import as_data
from testbed.topology.gossip import Gossip

ALL_PAIRS = 128  # workers, up to which every pair is listed; beyond, what grows with their square is left out


def plan_data(plan: Plan) -> dict[str, Any]:
    """Return everything, with keys that stay."""
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
            **file.as_data(network),
            "links": [
                {
                    **file.link_data(link),
                    "name": link.name,
                    "limit_ab": limit_packets(link.ab, link.ba, network.mtu),
                    "limit_ba": limit_packets(link.ba, link.ab, network.mtu),
                }
                for link in network.links
            ],
        },
        **_paths_json(point),
        "gpus": {name: [asdict(gpu) for gpu in some] for name, some in point.gpus.items()},
        "gossip": {
            "name": gossip.name,
            **_kind_json(gossip),
            **_matrices_json(gossip),
            "spectral_gap": gossip.spectral_gap,
            "gamma_opt": gossip.gamma_opt if spectrum else None,
        },
    }


def _paths_json(point: Point) -> dict[str, Any]:
    """Return all paths; in large networks those between neighbours, and how many that leaves out."""
    network = point.network
    if len(network.workers) <= ALL_PAIRS:
        return {"paths": [asdict(path) for path in network.paths]}
    rank = {worker.router: worker.rank for worker in network.workers}
    linked = {(rank[link.a], rank[link.b]) for link in network.links if link.a in rank and link.b in rank}
    chosen = sorted(gossiping(point.gossip) | {(min(pair), max(pair)) for pair in linked})
    paths = [network.forwarding.path(*pair) for pair in chosen]
    return {"paths": [asdict(path) for path in paths], "paths_left_out": pairs_of(network) - len(paths)}


def _kind_json(gossip: Gossip) -> dict[str, Any]:
    """Return how a graph differs from the usual kind: undirected, and the same cycle again and again."""
    usual = {"kind": "doubly", "drawn": None}
    return {key: value for key, value in {"kind": gossip.kind, "drawn": gossip.drawn}.items() if value != usual[key]}


def _matrices_json(gossip: Gossip) -> dict[str, Any]:
    """Return whole matrices; large ones as [receiver, sender, weight] where the weight is not 0."""
    if gossip.size <= ALL_PAIRS:
        return {"matrices": [matrix.tolist() for matrix in gossip.matrices]}
    places = [np.argwhere(matrix).tolist() for matrix in gossip.matrices]
    weights = [
        [[i, j, matrix.item(i, j)] for i, j in some] for matrix, some in zip(gossip.matrices, places, strict=True)
    ]
    return {"matrices": None, "weights": weights}


def gossiping(gossip: Gossip) -> set[tuple[int, int]]:
    """Return pairs of ranks, the lower one first, of which one mixes the other's messages in some round."""
    return {(min(a, b), max(a, b)) for a in range(gossip.size) for b in gossip.neighbours(a)}


def pairs_of(network: NetworkPlan) -> int:
    return len(network.workers) * (len(network.workers) - 1) // 2
