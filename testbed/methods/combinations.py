"""Which method goes with which graph and compressor: errors where it cannot work, warnings where the theory ends.

The methods' `check` calls it; the warnings stand beside the results.
"""

from __future__ import annotations

import numpy as np
import torch

from testbed.compressors.base import Compressor
from testbed.errors import ScenarioError
from testbed.flat import Layout
from testbed.topology.gossip import Gossip

PROBE = 10_000  # elements of the Gaussian vector that a compressor's relative error is measured on


def need_static(method: str, gossip: Gossip, why: str) -> None:
    if not gossip.static:
        raise ScenarioError(
            f"{method} cannot run on the time-varying graph {gossip.name}: {why}",
            hint="take a static graph, or a method without state per neighbour: dpsgd, deepsqueeze",
        )


def need_symmetric(method: str, gossip: Gossip, why: str) -> None:
    if not gossip.symmetric:
        raise ScenarioError(
            f"{method} cannot run on the directed graph {gossip.name}: {why}", hint="take an undirected graph"
        )


def need_doubly_stochastic(method: str, gossip: Gossip) -> None:
    if gossip.kind != "doubly":
        raise ScenarioError(
            f"{method} cannot run on {gossip.name}: the weights that a worker takes from others do not sum to 1 there, "
            "so the workers' mean would drift",
            hint="take sgp, which corrects for it, or weights: metropolis",
        )


def symmetric_wanted(method: str, gossip: Gossip) -> list[str]:
    return [] if gossip.symmetric else [f"{method} on {gossip.name}: its theory assumes a symmetric mixing matrix"]


def unbiased_needed(method: str, compressor: Compressor) -> list[str]:
    if compressor.unbiased or compressor.name == "identity":
        return []
    return [f"{method} with {compressor.name}: the compressor is biased, which the theory does not cover"]


def dcd_bound(compressor: Compressor, gossip: Gossip) -> list[str]:
    """DCD's sufficient condition α < ρ/(2β): ρ the spectral gap, β = ‖I − W‖₂, α the relative error on Gaussians."""
    if compressor.name == "step" or gossip.size == 1:  # an absolute error has no α; alone there is nothing to bound
        return []
    alpha, (W,) = relative_error(compressor), gossip.matrices
    bound = gossip.spectral_gap / (2 * float(np.linalg.norm(np.eye(gossip.size) - W, 2)))
    if alpha < bound:
        return []
    return [
        f"dcd with {compressor.name} on {gossip.name}: relative error {alpha:.2g} on Gaussian vectors is above the "
        f"{bound:.2g} up to which the theory covers this graph; it may converge slowly or diverge"
    ]


def absolute_error_needed(method: str, compressor: Compressor) -> list[str]:
    if compressor.name in ("identity", "step"):
        return []
    return [
        f"{method} with {compressor.name}: its error is proportional to what is compressed, and {method} compresses a "
        "vector that grows with every step; expect the error to grow too. The compressor `step` avoids it"
    ]


def contraction_needed(method: str, compressor: Compressor) -> list[str]:
    alpha = 0.0 if compressor.name == "step" else relative_error(compressor)
    if alpha < 1:
        return []
    return [
        f"{method} with {compressor.name}: the compressor is no contraction (relative error {alpha:.2g} on Gaussian "
        "vectors, above 1), so errors are amplified; use its scaled or biased variant"
    ]


def need_tunable(method: str, compressor: Compressor, gamma: float | str) -> None:
    if gamma == "auto" and compressor.name == "step":
        raise ScenarioError(
            f"{method}: gamma: auto cannot be found for the compressor step: its error depends on the model's scale",
            hint="give gamma as a number; 1 is right where the step is small",
        )


def relative_error(compressor: Compressor) -> float:
    """α = ‖C(v) − v‖ / ‖v‖ on one Gaussian vector: a property of the operator, cheap enough to look at each time."""
    v = torch.randn(PROBE, generator=torch.Generator().manual_seed(0))
    codec = compressor.bind(Layout.of([("probe", (100, PROBE // 100))]), seed=0)
    error = v.clone()
    codec.decompress_into(codec.compress(v, 0), error, -1.0)
    return float(error.norm() / v.norm())
