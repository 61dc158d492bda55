"""How fast pure gossip contracts, against the figures of theory and of independent simulations (factor of the squared
error per step). Vectors of 2000 instead of 10⁴ elements keep it quick; tolerances are about three times what that
costs.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.compressors import make as compressor
from testbed.flat import Layout
from testbed.methods.choco import Choco
from testbed.methods.deepsqueeze import DeepSqueeze
from testbed.methods.dpsgd import DPSGD
from testbed.methods.naive import Naive
from testbed.methods.powergossip import PowerGossip

from .harness import Cluster, ring, spread


def errors(method, steps, d=2000, layout=None, seed=0):
    x0 = torch.randn(8, d, generator=torch.Generator().manual_seed(seed))
    cluster = Cluster(method, ring(8), x0, layout=layout)
    cluster.run(steps)
    return np.array([spread(X) for X in cluster.history]) / spread(x0)


def factor(e):
    """Per step, over the second half."""
    half = len(e) // 2
    return float((e[-1] / e[half]) ** (1 / (len(e) - 1 - half)))


@pytest.mark.parametrize(("gamma", "expected"), [(1.0, 0.6476), (1.3084, 0.5543)])
@pytest.mark.parametrize("order", ["A", "B"])
def test_exact_gossip(gamma, expected, order):
    """T1: λ2² on a ring of 8."""
    assert factor(errors(DPSGD(order=order, gamma=gamma), 24)) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize(
    ("spec", "gamma", "steps", "expected", "tolerance"),
    [
        ({"quantize": "8bit"}, 1.0, 24, 0.6476, 5e-3),
        ({"quantize": "4bit"}, 1.0, 24, 0.6477, 5e-3),  # compression for nothing
        ({"topk": "10%"}, 0.1, 100, 0.9595, 5e-3),
        ({"topk": "10%"}, 0.3, 60, 0.8726, 1.5e-2),
        ({"topk": "1%"}, 0.0375, 300, 0.9856, 3e-3),
        ({"randomk": "10%"}, 0.1, 200, 0.9653, 1e-2),
    ],
    ids=str,
)
def test_choco_contracts(spec, gamma, steps, expected, tolerance):
    """T5."""
    e = errors(Choco(compressor(spec), gamma=gamma, order="icml"), steps)
    assert factor(e) == pytest.approx(expected, abs=tolerance)


def test_choco_with_qsgd_contracts():
    """T5; QSGD's error depends on the length of the vector, so this one has 10⁴. 5 bits are 15 levels and a sign."""
    method = Choco(compressor({"qsgd": {"bits": 5, "scaled": True}}), gamma=0.2, order="icml")
    assert factor(errors(method, 60, d=10_000)) == pytest.approx(0.9361, abs=1.5e-2)


@pytest.mark.parametrize(("spec", "gamma"), [({"topk": "10%"}, 0.7), ({"topk": "1%"}, 0.7), ({"randomk": "10%"}, 0.4)])
def test_choco_diverges_where_gamma_is_too_large(spec, gamma):
    e = errors(Choco(compressor(spec), gamma=gamma, order="icml"), 80)
    assert e[-1] > 2 * e[20]


def test_choco_with_sign():
    """T5: 10⁻³ of the start within 250 steps; at γ = 1 on to rounding."""
    assert errors(Choco(compressor("sign"), gamma=0.5, order="icml"), 250).min() < 1e-3
    assert errors(Choco(compressor("sign"), gamma=1.0, order="icml"), 70).min() < 1e-6


def test_deepsqueeze_has_a_floor():
    """T6: it falls with γ and is never left."""
    floors = [errors(DeepSqueeze(compressor("sign"), gamma=gamma), 250, d=500)[-50:].mean() for gamma in (0.4, 0.1)]
    assert floors == pytest.approx([5.5e-2, 3.4e-3], rel=0.5)
    choco = errors(Choco(compressor({"quantize": "8bit"}), gamma=0.5, order="icml"), 100)
    deep = errors(DeepSqueeze(compressor({"quantize": "8bit"}), gamma=0.5), 100)
    assert choco[-1] < 1e-6 < deep[-1] < 1e-4  # CHOCO has none


@pytest.mark.parametrize(("rank", "gamma"), [(1, 1.3084)])
def test_powergossip_contracts(rank, gamma):
    """T7, with 20 × 20 instead of 100 × 100 matrices: random projections contract by 1 − 2γ(r/m)(1−λ2) to first order,
    and a warm start is faster."""
    layout = Layout.of([("M", (20, 20))])
    random, warm = (
        factor(errors(PowerGossip(rank, warm_start=start, gamma=gamma), 200, d=400, layout=layout))
        for start in (False, True)
    )
    assert random == pytest.approx(1 - 2 * gamma * rank / 20 * (1 - 0.8047), abs=2.5e-3)
    assert 0.98 * random < warm < random - 1e-3


def test_powergossip_at_full_size():
    """T7: .98508 at rank 4 from random starts, on 100 × 100."""
    layout = Layout.of([("M", (100, 100))])
    e = errors(PowerGossip(rank=4, warm_start=False), 150, d=10_000, layout=layout)
    assert factor(e) == pytest.approx(0.98508, abs=4e-3)


def test_naive_agrees_on_a_wrong_value():
    """§3.2: squared drift of the mean on 100 × 100 Gaussians; 8684 is the error per worker at the start."""
    x0 = torch.randn(8, 10_000, generator=torch.Generator().manual_seed(0))
    for spec, expected in (({"quantize": "8bit"}, 1.1), ({"quantize": "4bit"}, 236), ("sign", 1270)):
        X = Cluster(Naive(compressor(spec)), ring(8), x0).run(60).double()
        drift = float((X.mean(0) - x0.double().mean(0)).square().sum())
        assert drift == pytest.approx(expected, rel=0.5), spec
